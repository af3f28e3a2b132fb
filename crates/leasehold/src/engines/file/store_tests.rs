//! A line's file under everything that may happen to it.

use super::*;
use crate::claim::{Claim, Mode, SessionId};
use crate::error::{ErrorKind, Step};
use crate::line::Moment;
use std::time::Duration;

const AT: Moment = Moment { now: 1, floor: 1 };

/// Two that have the same line's file open.
struct Two {
    _temp: tempfile::TempDir,
    dir: Dir,
    one: Option<Store>,
    other: Option<Store>,
}

fn two() -> Two {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    let [one, other] = [(); 2].map(|()| Store::open(&dir, &name(), true).unwrap());
    Two {
        _temp: temp,
        dir,
        one,
        other,
    }
}

fn name() -> Name {
    Name::new("x").unwrap()
}

/// The outcome of locking, with a file that is there.
fn tried<'a>(store: &'a mut Option<Store>, dir: &Dir) -> Result<Lock<'a>, Trouble> {
    lock(store, dir, &name(), false, || Ok(()))
}

fn got<'a>(store: &'a mut Option<Store>, dir: &Dir) -> Locked<'a> {
    match tried(store, dir).unwrap() {
        Lock::Got(locked) => locked,
        Lock::Busy => panic!("busy"),
        Lock::Absent => panic!("absent"),
    }
}

fn join(line: &mut Line, claims: usize) {
    for _ in 0..claims {
        let claim = Claim::new(name(), Mode::Mutex, Duration::from_secs(1));
        let _ = line.claim(&claim.ask(SessionId::random()), AT);
    }
}

#[test]
fn one_at_a_time_and_the_next_sees_what_was_written() {
    let mut two = two();
    let mut locked = got(&mut two.one, &two.dir);
    assert!(matches!(tried(&mut two.other, &two.dir), Ok(Lock::Busy)));
    join(&mut locked.line, 1);
    locked.write().unwrap();
    let written = locked.line.clone();
    drop(locked);
    assert_eq!(got(&mut two.other, &two.dir).line, written);
}

#[test]
fn a_write_that_fails_says_so_and_leaves_the_state_before() {
    let mut two = two();
    let mut locked = got(&mut two.one, &two.dir);
    join(&mut locked.line, 1);
    locked.write().unwrap();
    let before = locked.line.clone();
    drop(locked);
    let store = two.one.as_mut().unwrap();
    let path = store.path.clone();
    store.file = File::open(&path).unwrap();
    let mut locked = got(&mut two.one, &two.dir);
    join(&mut locked.line, 1);
    let error = locked.write().unwrap_err().at(Step::Claim);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    drop(locked);
    assert_eq!(got(&mut two.other, &two.dir).line, before);
}

#[test]
fn a_process_that_has_a_removed_file_open_notices() {
    let mut two = two();
    let mut locked = got(&mut two.one, &two.dir);
    join(&mut locked.line, 1);
    locked.write().unwrap();
    assert!(locked.remove(&two.dir).unwrap());
    assert!(matches!(tried(&mut two.other, &two.dir), Ok(Lock::Absent)));
    let made = lock(&mut two.other, &two.dir, &name(), true, || Ok(()));
    assert!(matches!(made, Ok(Lock::Got(locked)) if locked.line.is_idle()));
}

#[test]
fn a_long_line_fits_and_a_short_one_gives_the_room_back() {
    let mut two = two();
    let mut locked = got(&mut two.one, &two.dir);
    join(&mut locked.line, 2_000);
    locked.write().unwrap();
    drop(locked);
    for _ in 0..2 {
        let mut locked = got(&mut two.other, &two.dir);
        locked.line = Line::new(locked.line.last_fence() + 1);
        locked.write().unwrap();
        let written = locked.line.clone();
        drop(locked);
        assert_eq!(got(&mut two.one, &two.dir).line, written);
    }
    let file = &two.one.as_ref().unwrap().file;
    assert!(file.metadata().unwrap().len() <= PAGE as u64);
}

#[test]
fn a_file_that_was_cut_is_new_or_damaged() {
    let mut two = two();
    let mut locked = got(&mut two.one, &two.dir);
    join(&mut locked.line, 1);
    locked.write().unwrap();
    drop(locked);
    let file = two.one.as_ref().unwrap().file.try_clone().unwrap();
    file.set_len(0).unwrap();
    assert!(got(&mut two.one, &two.dir).line.is_idle());
    file.set_len(100).unwrap();
    assert!(tried(&mut two.one, &two.dir).is_err());
    assert!(tried(&mut two.other, &two.dir).is_err(), "it was unlocked");
}
