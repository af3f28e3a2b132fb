//! A line's file under everything that may happen to it.

use super::*;
use crate::claim::{Claim, Mode as ClaimMode, SessionId};
use crate::error::{ErrorKind, Step};
use crate::line::Moment;
use std::time::Duration;

const AT: Moment = Moment { now: 1, floor: 1 };

fn store() -> (tempfile::TempDir, Dir, Store) {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    let store = Store::open(&dir, &name(), true).unwrap().unwrap();
    (temp, dir, store)
}

fn name() -> Name {
    Name::new("x").unwrap()
}

fn got(store: &mut Store) -> Locked<'_> {
    match store.lock().unwrap() {
        Lock::Got(locked) => locked,
        Lock::Busy => panic!("busy"),
        Lock::Removed => panic!("removed"),
    }
}

fn join(line: &mut Line, claims: usize) {
    for _ in 0..claims {
        let claim = Claim::new(name(), ClaimMode::Mutex, Duration::from_secs(1));
        let _ = line.claim(&claim.ask(SessionId::random()), AT);
    }
}

#[test]
fn one_at_a_time_and_the_next_sees_what_was_written() {
    let (_temp, dir, mut store) = store();
    let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
    let mut locked = got(&mut store);
    assert!(matches!(other.lock().unwrap(), Lock::Busy));
    join(locked.line().unwrap(), 1);
    locked.write().unwrap();
    drop(locked);
    assert_eq!(got(&mut other).line().unwrap(), &store.line);
}

#[test]
fn a_write_that_fails_says_so_and_leaves_the_state_before() {
    let (_temp, _dir, mut store) = store();
    let mut locked = got(&mut store);
    join(locked.line().unwrap(), 1);
    locked.write().unwrap();
    drop(locked);
    let (before, path) = (store.line.clone(), store.path.clone());
    let writable = std::mem::replace(&mut store.file, File::open(&path).unwrap());
    let mut locked = got(&mut store);
    join(locked.line().unwrap(), 1);
    let error = locked.write().unwrap_err().at(Step::Claim);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    drop(locked);
    store.file = writable;
    assert_eq!(got(&mut store).line().unwrap(), &before);
}

#[test]
fn whoever_has_a_removed_file_open_notices() {
    let (_temp, dir, mut store) = store();
    let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
    let mut locked = got(&mut store);
    join(locked.line().unwrap(), 1);
    locked.write().unwrap();
    assert!(locked.remove().unwrap());
    assert!(matches!(other.lock().unwrap(), Lock::Removed));
    assert!(Store::open(&dir, &name(), false).unwrap().is_none());
}

#[test]
fn a_long_line_fits_and_a_short_one_gives_the_room_back() {
    let (_temp, dir, mut store) = store();
    let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
    let mut locked = got(&mut store);
    join(locked.line().unwrap(), 2_000);
    locked.write().unwrap();
    drop(locked);
    for _ in 0..2 {
        let mut locked = got(&mut store);
        let line = locked.line().unwrap();
        assert_eq!(got_by(&mut other), None, "one at a time");
        *line = Line::new(line.last_fence() + 1);
        locked.write().unwrap();
        drop(locked);
        assert_eq!(got_by(&mut other).as_ref(), Some(&store.line));
    }
    assert!(store.file.metadata().unwrap().len() <= PAGE as u64);
}

/// What a store finds, if it gets the lock.
fn got_by(store: &mut Store) -> Option<Line> {
    match store.lock().unwrap() {
        Lock::Got(mut locked) => Some(locked.line().unwrap().clone()),
        _ => None,
    }
}

#[test]
fn a_mapped_store_and_one_that_is_not_see_the_same() {
    let (_temp, dir, mut store) = store();
    for round in 0..10 {
        // Opened anew, it reads; used again and again, it is mapped. In between the line outgrows the page.
        let mut new = Store::open(&dir, &name(), false).unwrap().unwrap();
        for writer in [&mut new, &mut store] {
            let mut locked = got(writer);
            let line = locked.line().unwrap();
            match round {
                5 => join(line, 100),
                7 => *line = Line::new(line.last_fence()),
                _ => join(line, 1),
            }
            locked.write().unwrap();
        }
        assert_eq!(got_by(&mut new).as_ref(), Some(&store.line), "{round}");
    }
    assert!(
        store.page.is_some(),
        "the temporary directory can be mapped"
    );
}

#[test]
fn a_mapped_file_that_was_cut_is_no_end_of_the_process() {
    let (_temp, _dir, mut store) = store();
    for _ in 0..3 {
        let mut locked = got(&mut store);
        join(locked.line().unwrap(), 1);
        locked.write().unwrap();
    }
    assert!(store.mapped, "the temporary directory can be mapped");
    store.file.set_len(0).unwrap();
    assert!(got(&mut store).line().unwrap().is_idle());
    store.file.set_len(100).unwrap();
    assert!(got(&mut store).line().is_err());
}
