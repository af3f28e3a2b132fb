//! The line on random histories: every step is compared with a naive oracle and with what must hold whatever the
//! history was.

mod history;
mod oracle;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;

use leasehold::Fence;
use leasehold::engine::{Mode, Release, Standing};
use leasehold::line::{Ask, Change, LINE_MAX, Line, Moment, Place, Refusal, What};
use proptest::test_runner::{Config, TestRunner};

use history::{CLAIMS, Draw, Floor, KINDS, Kind, Time, claim_id, history, session_of};
use oracle::{Answer, Op, Oracle};
use watch::{Step, Watch};

/// How often something happened, so that nothing is proved of histories in which nothing happens.
type Seen = RefCell<BTreeMap<String, usize>>;

fn saw(seen: &Seen, what: &str) {
    *seen.borrow_mut().entry(what.to_owned()).or_default() += 1;
}

/// One line on its way through a history.
struct Run<'a> {
    modes: [Mode; 5],
    line: Line,
    oracle: Oracle,
    watch: Watch,
    clock: u64,
    floor: u64,
    seen: &'a Seen,
}

impl Run<'_> {
    fn step(&mut self, draw: &Draw) {
        let at = self.moment(draw);
        if matches!(draw.what, Kind::Restore) {
            return self.restore();
        }
        let op = self.op(&draw.what);
        let before: Vec<_> = self.line.places().cloned().collect();
        let untouched = self.line.clone();
        let (answer, changes) = apply(&mut self.line, &op, at);
        self.agrees(&op, at, &answer, &changes);
        self.watch.check(&Step {
            op: &op,
            at,
            before: &before,
            line: &self.line,
            answer: &answer,
            changes: &changes,
        });
        asked_twice(&self.line, &op, at, &answer);
        swept_before(untouched, &self.line, &op, at, (&answer, &changes));
        self.note(&answer, &changes);
    }

    fn moment(&mut self, draw: &Draw) -> Moment {
        match &draw.time {
            Time::On(by) => self.clock += by,
            Time::ToDeadline(which, exact) => {
                let ends: Vec<_> = self.line.places().map(|place| place.deadline).collect();
                if !ends.is_empty() {
                    let end = which.get(&ends) - u64::from(!exact);
                    self.clock = self.clock.max(end);
                }
            }
        }
        self.floor = match draw.floor {
            Floor::Keep => self.floor,
            Floor::Forward(by) => self.floor.saturating_add(by),
            Floor::Back(by) => self.floor.saturating_sub(by),
            Floor::Top(0) => u64::MAX,
            Floor::Top(below) => i64::MAX as u64 + 300 - below,
        };
        Moment {
            now: self.clock - draw.late,
            floor: self.floor,
        }
    }

    fn op(&self, kind: &Kind) -> Op {
        match kind {
            Kind::Claim {
                who,
                mode,
                lease,
                waits,
            } => Op::Claim(Ask {
                id: claim_id(*who),
                session: session_of(*who),
                mode: self.modes[usize::from(*mode)],
                lease: *lease,
                waits: *waits,
            }),
            Kind::Heartbeat(who) => Op::Heartbeat(claim_id(*who)),
            Kind::Release(who, used) => Op::Release(claim_id(*who), *used),
            Kind::SweepDead(who) => Op::SweepDead(session_of(*who)),
            Kind::EvictAll => Op::Evict(None),
            Kind::EvictOne(which, off) => {
                let fences: Vec<_> = self.line.holders().filter_map(|p| p.fence).collect();
                let first = if fences.is_empty() {
                    0
                } else {
                    which.get(&fences).get()
                };
                Op::Evict(Some(Fence::new(first + off)))
            }
            Kind::Sweep | Kind::Restore => Op::Sweep,
        }
    }

    /// The line and the oracle say the same and are left in the same state.
    fn agrees(&mut self, op: &Op, at: Moment, answer: &Answer, changes: &[Change]) {
        let expected = self.oracle.step(op, at);
        assert_eq!(
            (answer, changes),
            (&expected.0, expected.1.as_slice()),
            "{op:?}"
        );
        assert!(self.line.places().eq(&self.oracle.line), "{op:?}");
        assert_eq!(self.line.last_fence(), self.oracle.spent(), "{op:?}");
        assert!(self.line.is_idle() || self.line.capacity() == self.oracle.capacity);
        for who in 0..CLAIMS {
            let id = claim_id(who);
            assert_eq!(self.line.standing(id, at), self.oracle.standing(id, at));
        }
    }

    fn restore(&mut self) {
        let places = self.line.places().cloned().collect();
        let (capacity, last) = (self.line.capacity(), self.line.last_fence());
        let restored = Line::restore(capacity, last, places);
        assert_eq!(restored, self.line);
        self.line = restored;
        if self.line.is_idle() {
            self.line = Line::new(last);
            saw(self.seen, "forgotten while idle");
        }
    }

    fn note(&self, answer: &Answer, changes: &[Change]) {
        saw(self.seen, "step");
        saw(
            self.seen,
            match answer {
                Answer::Claim(Ok(Standing::Held(_))) => "claim: held",
                Answer::Claim(Ok(Standing::Waiting { .. })) => "claim: waiting",
                Answer::Claim(Ok(Standing::Busy)) => "claim: busy",
                Answer::Claim(Ok(_)) => {
                    panic!("a claim is never gone")
                }
                Answer::Claim(Err(Refusal::Capacity(_))) => "refused: capacity",
                Answer::Claim(Err(Refusal::Weight)) => "refused: weight",
                Answer::Claim(Err(Refusal::Fences)) => "refused: fences",
                Answer::Claim(Err(Refusal::Full)) => panic!("few claims are no full line"),
                Answer::Heartbeat(Standing::Held(_)) => "heartbeat: held",
                Answer::Heartbeat(Standing::Waiting { .. }) => "heartbeat: waiting",
                Answer::Heartbeat(_) => "heartbeat: gone",
                Answer::Release(Release::Released) => "release: released",
                Answer::Release(_) => "release: gone",
                Answer::Nothing => "sweep or evict",
            },
        );
        for change in changes {
            saw(
                self.seen,
                match change.what {
                    What::Granted(_) => "told: granted",
                    What::Wanted => "told: wanted",
                    What::Expired => "told: expired",
                    What::Evicted => "told: evicted",
                },
            );
        }
    }
}

fn apply(line: &mut Line, op: &Op, at: Moment) -> (Answer, Vec<Change>) {
    match op {
        Op::Claim(ask) => {
            let (answer, changes) = line.claim(ask, at);
            (Answer::Claim(answer), changes)
        }
        Op::Heartbeat(id) => {
            let (standing, changes) = line.heartbeat(*id, at);
            (Answer::Heartbeat(standing), changes)
        }
        Op::Release(id, used) => {
            let (release, changes) = line.release(*id, *used, at);
            (Answer::Release(release), changes)
        }
        Op::Sweep => (Answer::Nothing, line.sweep(at)),
        Op::SweepDead(dead) => (
            Answer::Nothing,
            line.sweep_dead(at, |session| session == *dead),
        ),
        Op::Evict(fence) => (Answer::Nothing, line.evict(*fence, at)),
    }
}

/// A repeated message changes nothing and gets the same answer; a released claim is gone.
fn asked_twice(line: &Line, op: &Op, at: Moment, answer: &Answer) {
    let still_there = line.places().all(|place| place.deadline > at.now);
    if op.asker().is_none() || !still_there {
        return;
    }
    let mut again = line.clone();
    let (second, _) = apply(&mut again, op, at);
    assert_eq!(&again, line, "{op:?} twice");
    match answer {
        Answer::Release(_) => assert_eq!(second, Answer::Release(Release::Gone)),
        first => assert_eq!(&second, first, "{op:?} twice"),
    }
}

/// A sweep just before makes no difference.
fn swept_before(mut line: Line, after: &Line, op: &Op, at: Moment, said: (&Answer, &Vec<Change>)) {
    if matches!(op, Op::SweepDead(_)) {
        // A sweep before it might grant to the dead first.
        return;
    }
    let mut changes = line.sweep(at);
    changes.retain(|change| Some(change.claim) != op.asker());
    let (answer, more) = apply(&mut line, op, at);
    changes.extend(more);
    assert_eq!(&line, after, "{op:?}");
    assert_eq!((&answer, &changes), said, "{op:?}");
}

#[test]
fn random_histories_follow_the_rule() {
    let seen = Seen::default();
    let config = Config {
        cases: 1200,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&history(), |history| {
        let mut run = Run {
            modes: KINDS[history.kind],
            line: Line::new(history.start),
            oracle: Oracle::new(history.start),
            watch: Watch::new(history.start),
            clock: 100,
            floor: 0,
            seen: &seen,
        };
        history.draws.iter().for_each(|draw| run.step(draw));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let seen = seen.into_inner();
    println!("{seen:#?}");
    assert!(seen["step"] >= 100_000, "only {} steps", seen["step"]);
    assert_eq!(seen.len(), 18, "something never happened");
    assert!(
        seen.values().all(|count| *count >= 20),
        "something hardly happened"
    );
}

/// A line ends: the next claim that would wait is refused, a try is busy, and a claim in the line is renewed.
#[test]
fn a_full_line_refuses_the_next_waiter() {
    let ask = |id: usize, waits| Ask {
        id: leasehold::engine::ClaimId::from_u128(id as u128),
        session: leasehold::engine::SessionId::from_u128(1),
        mode: Mode::Mutex,
        lease: 1_000,
        waits,
    };
    let at = Moment { now: 5, floor: 0 };
    let place = |id| Place {
        id: ask(id, true).id,
        session: ask(id, true).session,
        weight: 1,
        lease: 1_000,
        since: 0,
        deadline: 1_000,
        fence: (id == 0).then_some(Fence::new(1)),
    };
    let mut line = Line::restore(1, 256, (0..LINE_MAX).map(place).collect());
    assert_eq!(line.claim(&ask(LINE_MAX, true), at).0, Err(Refusal::Full));
    assert_eq!(line.claim(&ask(LINE_MAX, false), at).0, Ok(Standing::Busy));
    assert!(line.claim(&ask(7, true), at).0.is_ok());
    let _ = line.release(ask(0, true).id, 1, at);
    assert!(line.claim(&ask(LINE_MAX, true), at).0.is_ok());
}
