//! Taking times and putting them side by side.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; it decides nothing by it"
)]

use std::fmt;
use std::time::{Duration, Instant};

/// An error ends the benchmark, which prints it.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A stopwatch that runs.
#[derive(Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// How long one side of an uncontended pair is measured. The same for both: on a busy machine a short slice is never
/// interrupted and a long one always is, and the ratio would show that.
const SLICE: Duration = Duration::from_millis(20);

/// Counts rounds until a slice of time is over.
pub(crate) struct Slice {
    watch: Watch,
    rounds: u64,
}

impl Slice {
    pub(crate) fn start() -> Self {
        let watch = Watch::start();
        Self { watch, rounds: 0 }
    }

    /// Whether there is time for another round. Looks at the clock every hundredth time.
    pub(crate) fn another(&mut self) -> bool {
        let over = self.rounds.is_multiple_of(100) && self.watch.elapsed() >= SLICE;
        self.rounds += u64::from(!over);
        !over
    }

    /// The time of one round, in nanoseconds.
    pub(crate) fn nanos_each(&self) -> f64 {
        self.watch.elapsed().as_nanos() as f64 / self.rounds as f64
    }
}

/// The middle of some repeats, and how far they lie apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            low: at(0),
            median: at(values.len() / 2),
            high: at(values.len().saturating_sub(1)),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, median, high } = self;
        write!(f, "{median:.2} [{low:.2}..{high:.2}]")
    }
}

/// The same work done by us and by a peer.
pub(crate) struct Duel {
    pub(crate) ours: Spread,
    pub(crate) peer: Spread,
    /// Ours by the peer's, of neighbouring repeats.
    pub(crate) ratio: Spread,
}

impl Duel {
    /// The figures of neighbouring repeats side by side.
    pub(crate) fn of(ours: &[f64], peer: &[f64]) -> Self {
        let ratios = ours.iter().zip(peer).map(|(ours, peer)| ours / peer);
        Self {
            ratio: Spread::of(ratios.collect()),
            ours: Spread::of(ours.to_vec()),
            peer: Spread::of(peer.to_vec()),
        }
    }
}

/// Measures both in turn, so that a machine that slows down slows both. The first pair only warms up.
pub(crate) fn duel(
    repeats: usize,
    mut ours: impl FnMut() -> Outcome<f64>,
    mut peer: impl FnMut() -> Outcome<f64>,
) -> Outcome<Duel> {
    let [ours, peer] = in_turn(repeats, [&mut ours, &mut peer])?;
    Ok(Duel::of(&ours, &peer))
}

/// The figures of all of them, measured in turn. The first round only warms up.
pub(crate) fn in_turn<const N: usize>(
    repeats: usize,
    mut all: [&mut dyn FnMut() -> Outcome<f64>; N],
) -> Outcome<[Vec<f64>; N]> {
    let mut figures = [const { Vec::new() }; N];
    for repeat in 0..=repeats {
        for (one, figures) in all.iter_mut().zip(&mut figures) {
            let figure = one()?;
            if repeat > 0 {
                figures.push(figure);
            }
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_the_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 2.0, 3.0));
    }

    #[test]
    fn a_duel_leaves_out_the_first_pair_and_compares_neighbours() {
        let mut ours = [100.0, 2.0, 6.0, 4.0].into_iter();
        let mut peer = [1.0, 1.0, 2.0, 4.0].into_iter();
        let duel = duel(3, || Ok(ours.next().unwrap()), || Ok(peer.next().unwrap())).unwrap();
        assert_eq!(duel.ours.high, 6.0);
        assert_eq!(
            (duel.ratio.low, duel.ratio.median, duel.ratio.high),
            (1.0, 2.0, 3.0)
        );
    }
}
