//! One task: asks, holds, looks at its guard, tries effects, releases, all from its seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, Guard, GuardState, Name, Owner, Released};

use super::gate::Visitor;
use super::locks::{BOTH, Patience, lock};
pub(crate) use super::locks::{Kind, TURNS, take_away, take_whole};
use crate::Outcome;
use crate::history::{Call, Log, What};
use crate::random::Random;

/// One task of a worker.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) client: Client,
    /// The name of its process in the history and in `inspect`.
    pub(crate) process: String,
    pub(crate) log: Log,
    pub(crate) gate: Visitor,
    pub(crate) random: Random,
    /// The only task of its process: its claim in the engine's line is its own.
    pub(crate) alone: bool,
    pub(crate) owner: Owner,
    pub(crate) owner_number: u64,
    pub(crate) lease: Duration,
    /// The longest it rests between two steps.
    pub(crate) rest: Duration,
    /// The names it locks, and how.
    pub(crate) names: Vec<(&'static str, Kind)>,
    pub(crate) ops: Arc<AtomicU64>,
}

impl Hand {
    /// Locks again and again.
    pub(crate) async fn go_on_while(
        mut self,
        mut go_on: impl FnMut() -> bool + Send,
    ) -> Outcome<()> {
        while go_on() {
            self.one().await?;
            if self.random.one_in(4) {
                tokio::time::sleep(self.some(self.rest / 4)).await;
            }
        }
        Ok(())
    }

    fn some(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.below(longest.as_micros() as u64))
    }

    async fn one(&mut self) -> Outcome<()> {
        let (name, kind) = *self.random.pick(&self.names);
        if kind == Kind::Both {
            return self.both().await;
        }
        let (weight, capacity) = match kind {
            Kind::Mutex | Kind::Reentrant | Kind::Both => (1, 1),
            Kind::ReadWrite if self.random.one_in(3) => (u32::MAX, u32::MAX),
            Kind::ReadWrite => (1, u32::MAX),
            Kind::Permits(all) => (self.random.within(1, u64::from(all) + 1) as u32, all),
        };
        let owner = if kind == Kind::Reentrant {
            self.owner_number
        } else {
            0
        };
        let call = Call {
            name: name.into(),
            weight,
            capacity,
            waits: true,
            several: false,
            lease: self.lease.as_micros() as u64,
            owner,
        };
        let Some((op, guard)) = self.ask(kind, &call).await? else {
            return Ok(());
        };
        if kind == Kind::Reentrant && self.random.one_in(2) {
            // Now and then so late that the lock may be lost by then: a lost lock is not re-entered.
            if self.random.one_in(2) {
                let end = self.log.now() + self.some(self.lease * 2).as_micros() as u64;
                while self.log.now() < end {
                    tokio::time::sleep(self.rest).await;
                    self.note_until(op, &guard);
                }
            }
            let inner = self.ask(kind, &call).await?;
            if let Some((again, inner)) = inner {
                self.hold(again, inner, true, Some((op, &guard))).await?;
            }
        }
        self.hold(op, guard, weight == capacity, None).await
    }

    /// Asks once: waits, tries, waits a while, or gives up somewhere in between.
    async fn ask(&mut self, kind: Kind, call: &Call) -> Outcome<Option<(u64, Guard)>> {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let (patience, gives_up) = match self.random.below(10) {
            0 => (Patience::None, None),
            1 => (Patience::Some(self.some(self.rest * 5)), None),
            2 => (Patience::Endless, Some(self.some(self.rest * 3))),
            _ => (Patience::Endless, None),
        };
        let waits = patience != Patience::None;
        self.log.note(
            op,
            What::Call(Call {
                waits,
                ..call.clone()
            }),
        );
        // In strict order no other task of this process is handed the grant.
        let strict = self.random.one_in(4);
        let asked = lock(&self.client, &self.owner, kind, call, patience, strict);
        let asked = async {
            tokio::pin!(asked);
            tokio::select! {
                biased;
                answer = &mut asked => return Some(answer),
                () = self.note_queued(op, &call.name) => {}
            }
            Some(asked.await)
        };
        let answer = match gives_up {
            None => asked.await,
            Some(after) => tokio::time::timeout(after, asked).await.unwrap_or(None),
        };
        let what = match answer {
            None => What::Cancelled,
            // Time ran out: that says nothing of the holder. Nor does a try where two can be in each other's way.
            Some(Ok(None)) if waits || !self.client.guarantees().ordered => What::Cancelled,
            Some(Ok(None)) => What::Busy,
            Some(Err(error)) => What::Failed {
                perhaps: error.may_have_happened(),
            },
            Some(Ok(Some(guard))) => {
                let until = self.until(&guard);
                self.log.note(
                    op,
                    What::Granted {
                        fence: guard.fence().get(),
                        until,
                    },
                );
                return Ok(Some((op, guard)));
            }
        };
        let failed = matches!(what, What::Failed { .. });
        self.log.note(op, what);
        if failed {
            tokio::time::sleep(self.some(self.rest)).await;
        }
        Ok(None)
    }

    /// Asks the engine whether our claim is in its line; comes back once it was seen there.
    async fn note_queued(&self, op: u64, name: &str) {
        if !self.alone {
            return std::future::pending().await;
        }
        let Ok(name) = Name::new(name) else { return };
        let query = Query::name(name);
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let lines = self.client.inspect(&query).await.unwrap_or_default();
            let mut waiters = lines.iter().flat_map(|line| &line.waiters);
            if waiters.any(|claim| {
                claim
                    .who
                    .as_ref()
                    .is_some_and(|who| who.command == self.process)
            }) {
                return self.log.note(op, What::Queued);
            }
        }
    }

    /// The end of validity, never later than it is.
    fn until(&self, guard: &Guard) -> u64 {
        let now = self.log.now();
        now + guard.remaining().as_micros() as u64
    }

    /// A renewal may have been seen.
    fn note_until(&self, op: u64, guard: &Guard) {
        let until = self.until(guard);
        if guard.state() != GuardState::Lost {
            self.log.note(op, What::Until(until));
        }
    }

    /// Notes the state of a guard while another one is looked at.
    fn note_outer(&self, outer: Option<(u64, &Guard)>) {
        match outer {
            Some((op, guard)) if guard.state() == GuardState::Lost => self.log.note(op, What::Lost),
            Some((op, guard)) => self.note_until(op, guard),
            None => {}
        }
    }

    /// Holds for a while, looking before each step; a step that comes too late is tried all the same. `outer` is held
    /// around it.
    async fn hold(
        &mut self,
        op: u64,
        guard: Guard,
        alone: bool,
        outer: Option<(u64, &Guard)>,
    ) -> Outcome<()> {
        let fence = guard.fence().get();
        let name = guard.name().as_str().to_owned();
        let who = self.log.who().to_owned();
        // Now and then long enough for a fault to find it held.
        let steps = match self.random.one_in(4) {
            true => self.random.within(8, 25),
            false => self.random.within(1, 5),
        };
        for _ in 0..steps {
            let now_lost = guard.state() == GuardState::Lost;
            // Only a holder that is alone changes the resource. A look is no protection: it may stand still now.
            if alone {
                let _ = self.gate.knock(&name, &who, fence)?;
            }
            if now_lost {
                self.log.note(op, What::Lost);
                break;
            }
            let rest = self.some(self.rest);
            let lost = tokio::time::timeout(rest, guard.lost()).await;
            if lost.is_ok() {
                self.log.note(op, What::Lost);
                if alone {
                    let _ = self.gate.knock(&name, &who, fence)?;
                }
                break;
            }
            self.note_until(op, &guard);
            self.note_outer(outer);
        }
        self.note_outer(outer);
        self.log.note(op, What::Release);
        if self.random.one_in(8) {
            drop(guard);
        } else if let Ok(released) = guard.release().await {
            let held = released == Released::Released;
            // No other task of this process waits, and nothing is re-entered: only the engine can have said so.
            let asked = self.alone && name != "again";
            self.log.note(op, What::Released { held, asked });
        }
        Ok(())
    }

    /// Two names in one step, all or none.
    async fn both(&mut self) -> Outcome<()> {
        let ops = BOTH.map(|name| (name, self.ops.fetch_add(1, Ordering::Relaxed)));
        let lease = self.lease.as_micros() as u64;
        for (name, op) in ops {
            self.log.note(
                op,
                What::Call(Call {
                    name: name.into(),
                    weight: 1,
                    capacity: 1,
                    waits: true,
                    several: true,
                    lease,
                    owner: 0,
                }),
            );
        }
        let lock = self.client.multi(BOTH);
        let answer = match self.random.one_in(3) {
            true => tokio::time::timeout(self.some(self.rest * 3), lock.lock())
                .await
                .ok(),
            false => Some(lock.lock().await),
        };
        let note = |this: &Self, what: &What| {
            ops.iter()
                .for_each(|(_, op)| this.log.note(*op, what.clone()))
        };
        let guard = match answer {
            Some(Ok(guard)) => guard,
            none => {
                self.note_neither(&ops, none.and_then(Result::err));
                return Ok(());
            }
        };
        for (guard, (_, op)) in guard.guards().iter().zip(ops) {
            let until = self.until(guard);
            self.log.note(
                op,
                What::Granted {
                    fence: guard.fence().get(),
                    until,
                },
            );
        }
        let rest = self.some(self.rest * 2);
        if tokio::time::timeout(rest, guard.lost()).await.is_ok() {
            note(self, &What::Lost);
        }
        // Renewed meanwhile: a lock that is not known to be held would be looked for as free.
        for (guard, (_, op)) in guard.guards().iter().zip(ops) {
            self.note_until(op, guard);
        }
        note(self, &What::Release);
        if let Ok(released) = guard.release().await {
            let held = released == Released::Released;
            note(self, &What::Released { held, asked: false });
        }
        Ok(())
    }

    /// Neither of two names was got. If the second failed, the first was held and is given back in the background.
    fn note_neither(&self, ops: &[(&str, u64)], error: Option<leasehold::Error>) {
        for (name, op) in ops {
            let perhaps = |error: &leasehold::Error| {
                let other = error.name().is_some_and(|of| of.as_str() != *name);
                error.may_have_happened() || other
            };
            let failed = error.as_ref().map(perhaps);
            let what = failed.map_or(What::Cancelled, |perhaps| What::Failed { perhaps });
            self.log.note(*op, what);
        }
    }
}
