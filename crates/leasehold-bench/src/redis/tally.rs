//! The results of the lockers of a run, and how they go from process to process.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::measure::Outcome;

/// Eight to an octave: a wait is known to a tenth.
const STEPS: f64 = 8.0;

/// Told as `cycles TIMES:LONGEST … waits STEP:COUNT …`, microseconds, a pair per locker and one per step.
#[derive(Default)]
pub(super) struct Tally {
    /// How often each was served, and its longest wait.
    lockers: Vec<(u64, u64)>,
    /// How many waits took how long, by the logarithm.
    waits: BTreeMap<u32, u64>,
}

impl Tally {
    pub(super) fn waited(&mut self, time: Duration) {
        let micros = (time.as_micros() as f64).max(1.0);
        let step = (micros.log2() * STEPS) as u32;
        *self.waits.entry(step).or_default() += 1;
    }

    pub(super) fn served(&mut self, times: u64, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        self.lockers.push((times, micros));
    }

    pub(super) fn add(&mut self, other: Self) {
        self.lockers.extend(other.lockers);
        for (step, count) in other.waits {
            *self.waits.entry(step).or_default() += count;
        }
    }

    pub(super) fn tell(&self) -> String {
        let pair = |(a, b): (String, String)| format!(" {a}:{b}");
        let lockers = self
            .lockers
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()));
        let waits = self
            .waits
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()));
        let lockers: String = lockers.map(pair).collect();
        let waits: String = waits.map(pair).collect();
        format!("cycles{lockers} waits{waits}")
    }

    pub(super) fn read(said: &str) -> Outcome<Self> {
        let told = said
            .strip_prefix("cycles")
            .and_then(|rest| rest.split_once(" waits"));
        let (lockers, waits) = told.ok_or_else(|| format!("a worker said {said}"))?;
        let lockers: Outcome<_> = lockers.split_whitespace().map(numbers).collect();
        let waits: Outcome<Vec<(u64, u64)>> = waits.split_whitespace().map(numbers).collect();
        let steps = waits?.into_iter().map(|(step, count)| (step as u32, count));
        Ok(Self {
            lockers: lockers?,
            waits: steps.collect(),
        })
    }

    pub(super) fn total(&self) -> f64 {
        self.lockers.iter().map(|(times, _)| *times as f64).sum()
    }

    /// The least served by the most served.
    pub(super) fn share(&self) -> f64 {
        let times = self.lockers.iter().map(|(times, _)| *times);
        times.clone().min().unwrap_or(0) as f64 / times.max().unwrap_or(0) as f64
    }

    pub(super) fn longest_ms(&self) -> f64 {
        let longest = self.lockers.iter().map(|(_, micros)| *micros).max();
        longest.unwrap_or(0) as f64 / 1e3
    }

    /// 99 of 100 waits are below this.
    pub(super) fn p99_ms(&self) -> f64 {
        let all: u64 = self.waits.values().sum();
        let mut left = all - all / 100;
        for (step, count) in &self.waits {
            left = left.saturating_sub(*count);
            if left == 0 {
                return (f64::from(step + 1) / STEPS).exp2() / 1e3;
            }
        }
        f64::NAN
    }
}

fn numbers(pair: &str) -> Outcome<(u64, u64)> {
    let (a, b) = pair.split_once(':').ok_or("a worker's line is torn")?;
    Ok((a.parse()?, b.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_read_as_it_was_written() {
        let mut tally = Tally::default();
        for _ in 0..98 {
            tally.waited(Duration::from_micros(100));
        }
        tally.waited(Duration::from_millis(5));
        tally.waited(Duration::from_secs(1));
        tally.served(98, Duration::from_millis(5));
        tally.served(49, Duration::from_secs(1));
        let read = Tally::read(&tally.tell()).unwrap();
        assert_eq!((read.total(), read.share()), (147.0, 0.5));
        assert_eq!(read.longest_ms(), 1000.0);
        assert!((5.0..5.6).contains(&read.p99_ms()), "{}", read.p99_ms());
    }
}
