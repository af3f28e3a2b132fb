//! Invariants of the guards, at every step.

use std::time::Duration;

use leasehold::engine::Micros;

use super::{Hold, State, capacity, promise};

impl State {
    pub(super) fn see_losses(&mut self) {
        let now = self.now();
        for index in 0..self.holds.len() {
            if self.holds[index].lost || self.is_valid(&self.holds[index]) {
                continue;
            }
            self.holds[index].lost = true;
            self.lost += 1;
            let hold = &self.holds[index];
            let (name, fence, terms, client) = (hold.name, hold.fence, hold.terms, hold.client);
            let weight = hold.weight;
            let held = Duration::from_micros(now - hold.since);
            let lease = self.lease_of(&terms);
            let slack = self.slack() + lease.as_micros() as u64 / 8;
            let line = &mut self.lines[name];
            line.turn_ended(fence, weight);
            line.busy = line.busy.max(now + slack);
            line.cool
                .iter_mut()
                .for_each(|until| *until = (*until).max(now + slack));
            line.used[client] = now;
            let fact = self.fact(name, fence);
            let caused = fact.is_none_or(|fact| fact.ended || fact.troubled)
                || self.lives[client].closing.is_some();
            // A fixed lease counts from its grant, also for who re-entered it.
            let granted = fact.and_then(|fact| fact.granted).unwrap_or(now);
            let whole = held.max(Duration::from_micros(now - granted));
            let in_time = !terms.keep_alive && whole + self.tolerance(lease) >= lease;
            if !caused && !in_time && self.renews(lease) {
                let what = format!(
                    "fence {fence} of {} was lost after {held:?}, and nothing had gone wrong for it",
                    super::super::name(name)
                );
                self.accuse("P7", what);
            }
        }
    }

    /// Whether renewals of this lease get through: a heartbeat has a third of it for its answer.
    fn renews(&self, lease: Duration) -> bool {
        let world = &self.program.world;
        let exact = world.longest.is_zero() && (world.trip + Duration::from_millis(1)) * 3 < lease;
        self.steady(lease) || (!world.faults && exact)
    }

    /// How much shorter a fixed lease may be on our side.
    pub(super) fn tolerance(&self, lease: Duration) -> Duration {
        lease / 20 + Duration::from_millis(10) + Duration::from_micros(self.prompt())
    }

    pub(super) fn see_exclusion(&mut self, name: usize) {
        let mut turns: Vec<(u64, u32)> = Vec::new();
        let mut seen: Vec<&Hold> = Vec::new();
        let mut bad = None;
        for hold in self.holds.iter().filter(|hold| hold.name == name) {
            let excused = self
                .fact(name, hold.fence)
                .is_none_or(|fact| fact.evicted && !fact.told_end);
            if !self.is_valid(hold) || excused {
                continue;
            }
            let twin = seen.iter().find(|other| other.fence == hold.fence);
            if let Some(twin) = twin {
                if twin.who != hold.who || twin.client != hold.client {
                    bad = Some((
                        "P17",
                        format!(
                            "fence {} serves {:?} and {:?}",
                            hold.fence, twin.who, hold.who
                        ),
                    ));
                }
                if (twin.downgraded && hold.writes) || (hold.downgraded && twin.writes) {
                    bad = Some((
                        "P24",
                        format!(
                            "fence {} of {} reads and writes",
                            hold.fence,
                            super::super::name(name)
                        ),
                    ));
                }
            }
            seen.push(hold);
            match turns.iter_mut().find(|(fence, _)| *fence == hold.fence) {
                Some((_, weight)) => *weight = (*weight).max(hold.weight),
                None => turns.push((hold.fence, hold.weight)),
            }
        }
        let sum: u64 = turns.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if sum > u64::from(capacity(self.lines[name].kind)) {
            let holders: Vec<_> = seen
                .iter()
                .map(|hold| format!("fence {} of client {}", hold.fence, hold.client))
                .collect();
            bad = Some((
                promise(self.lines[name].kind),
                format!(
                    "valid at once on {}: {}",
                    super::super::name(name),
                    holders.join(", ")
                ),
            ));
        }
        if let Some((promise, what)) = bad {
            self.accuse(promise, what);
        }
    }

    pub(super) fn see_fixed_leases(&mut self) {
        let now = self.now();
        let prompt = self.prompt();
        let late = self.holds.iter().find(|hold| {
            let lease = self.lease_of(&hold.terms).as_micros() as u64;
            let end = hold.since + lease + prompt;
            !hold.terms.keep_alive && now + self.remaining(hold) > end && self.is_valid(hold)
        });
        if let Some(hold) = late {
            let what = format!(
                "fence {} of {} has a fixed lease and is valid beyond it",
                hold.fence,
                super::super::name(hold.name)
            );
            self.accuse("P21", what);
        }
    }

    /// How long a guard says it is valid, where it is asked.
    pub(super) fn remaining(&self, hold: &Hold) -> Micros {
        let taken = hold.taken.upgrade().filter(|_| self.program.world.loud);
        taken.map_or(0, |taken| {
            taken.guards()[hold.index].remaining().as_micros() as u64
        })
    }
}
