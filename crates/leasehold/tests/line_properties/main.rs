//! The line on random histories: every step is compared with a naive oracle and with what must hold whatever the
//! history was.

mod oracle;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;

use leasehold::Fence;
use leasehold::engine::{ClaimId, Mode, Release, SessionId, Standing};
use leasehold::line::{Ask, Change, Line, Moment, Refusal, What};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use oracle::{Answer, Op, Oracle};
use watch::{Step, Watch};

/// How a history moves between two operations.
#[derive(Debug, Clone)]
enum Time {
    On(u64),
    /// Exactly to the end of some claim, or one before it.
    ToDeadline(Index, bool),
}

/// One step as it is drawn; what it means depends on the line it meets.
#[derive(Debug, Clone)]
struct Draw {
    time: Time,
    /// How late this operation comes after it read the clock.
    late: u64,
    floor: Floor,
    what: Kind,
}

#[derive(Debug, Clone)]
enum Floor {
    Keep,
    Forward(u64),
    Back(u64),
    /// So high that only a few blocks are left, or none.
    Top(u64),
}

#[derive(Debug, Clone)]
enum Kind {
    Claim {
        who: u8,
        mode: u8,
        lease: u64,
        waits: bool,
    },
    Heartbeat(u8),
    Release(u8, u32),
    Sweep,
    SweepDead(u8),
    EvictAll,
    /// A fence of some holder's block.
    EvictOne(Index, u64),
    /// Written down and read back; an idle line only by its last fence.
    Restore,
}

#[derive(Debug, Clone)]
struct History {
    kind: usize,
    start: u64,
    draws: Vec<Draw>,
}

/// The modes of one line, the usual ones first; the last two do not belong.
const KINDS: [[Mode; 5]; 4] = {
    const fn of(count: u32, of: u32) -> Mode {
        Mode::Permits { count, of }
    }
    use Mode::{Mutex, Read, Write};
    [
        [Mutex, Mutex, Mutex, Read, of(0, 1)],
        [Read, Write, Read, Mutex, of(0, u32::MAX)],
        [of(1, 2), of(2, 2), of(1, 2), of(1, 3), of(3, 2)],
        [of(1, 4), of(3, 4), of(2, 4), of(4, 5), of(0, 4)],
    ]
};
const CLAIMS: u8 = 7;
/// The steps of a history, on average.
const STEPS: usize = 100;

fn claim_id(who: u8) -> ClaimId {
    ClaimId::from_u128(u128::from(who) << 104)
}

/// Three sessions with several claims each.
fn session_of(who: u8) -> SessionId {
    SessionId::from_u128(u128::from(who % 3) << 104)
}

fn draw(edge: bool) -> impl Strategy<Value = Draw> {
    let time = prop_oneof![
        12 => Just(Time::On(0)),
        6 => (1..4_u64).prop_map(Time::On),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(i, exact)| Time::ToDeadline(i, exact)),
    ];
    let floor = prop_oneof![
        6 => Just(Floor::Keep),
        2 => (1..700_u64).prop_map(Floor::Forward),
        1 => (1..700_u64).prop_map(Floor::Back),
        u32::from(edge) => (0..2000_u64).prop_map(Floor::Top),
    ];
    let lease = prop_oneof![1 => 0..4_u64, 5 => 10..80_u64];
    let used = prop_oneof![0..4_u32, 250..260_u32, Just(u32::MAX)];
    let mode = prop_oneof![20 => 0..3_u8, 1 => 3..5_u8];
    let what = prop_oneof![
        12 => (0..CLAIMS, mode, lease, prop::bool::weighted(0.8))
            .prop_map(|(who, mode, lease, waits)| Kind::Claim { who, mode, lease, waits }),
        6 => (0..CLAIMS).prop_map(Kind::Heartbeat),
        5 => (0..CLAIMS, used).prop_map(|(who, used)| Kind::Release(who, used)),
        1 => Just(Kind::Sweep),
        1 => (0..3_u8).prop_map(Kind::SweepDead),
        1 => Just(Kind::EvictAll),
        1 => (any::<Index>(), 0..300_u64).prop_map(|(i, off)| Kind::EvictOne(i, off)),
        1 => Just(Kind::Restore),
    ];
    let late = prop_oneof![9 => Just(0_u64), 1 => 1..4_u64];
    (time, late, floor, what).prop_map(|(time, late, floor, what)| Draw {
        time,
        late,
        floor,
        what,
    })
}

fn history() -> impl Strategy<Value = History> {
    let edge = prop::bool::weighted(0.1);
    (0..KINDS.len(), edge, 0..3000_u64).prop_flat_map(|(kind, edge, low)| {
        let start = if edge { i64::MAX as u64 - low } else { low };
        prop::collection::vec(draw(edge), 1..2 * STEPS).prop_map(move |draws| History {
            kind,
            start,
            draws,
        })
    })
}

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
            Floor::Top(below) if below == 0 => u64::MAX,
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
                Answer::Claim(Ok(Standing::Gone)) => panic!("a claim is never gone"),
                Answer::Claim(Err(Refusal::Capacity(_))) => "refused: capacity",
                Answer::Claim(Err(Refusal::Weight)) => "refused: weight",
                Answer::Claim(Err(Refusal::Fences)) => "refused: fences",
                Answer::Heartbeat(Standing::Held(_)) => "heartbeat: held",
                Answer::Heartbeat(Standing::Waiting { .. }) => "heartbeat: waiting",
                Answer::Heartbeat(_) => "heartbeat: gone",
                Answer::Release(Release::Released) => "release: released",
                Answer::Release(Release::Gone) => "release: gone",
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

/// A repeated message changes nothing and gets the same answer; what was released is gone.
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

/// It makes no difference whether somebody swept just before.
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
