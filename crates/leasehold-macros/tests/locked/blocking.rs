//! Functions that block.

use std::time::Duration;

use leasehold::blocking::{Client, Guard, WriteGuard};
use leasehold::{ErrorKind, Fence, locked};

use crate::Problem;

fn client() -> Client {
    leasehold::blocking::connect("memory:").expect("connected")
}

fn is_busy(locks: &Client) -> bool {
    let taken = locks.mutex("x").try_lock();
    taken.expect("memory answers").is_none()
}

struct Shop {
    locks: Client,
    sold: Vec<u64>,
}

impl Shop {
    #[locked(self.locks, "stock:{item}", guard = guard)]
    fn sell(&mut self, item: u64) -> leasehold::Result<&u64> {
        let guard: &Guard = guard;
        assert_eq!(guard.name().as_str(), "stock:42");
        self.sold.push(item);
        Ok(&self.sold[0])
    }
}

#[test]
fn a_method_has_the_lock_and_may_return_what_it_borrows() {
    let mut shop = Shop {
        locks: client(),
        sold: Vec::new(),
    };
    assert_eq!(*shop.sell(42).unwrap(), 42);
    assert!(shop.locks.mutex("stock:42").try_lock().unwrap().is_some());
}

#[locked(locks, "x", read)]
fn reading(locks: &Client) -> leasehold::Result<(bool, bool)> {
    let lock = locks.rwlock("x");
    Ok((lock.try_read()?.is_some(), lock.try_write()?.is_some()))
}

#[locked(locks, "x", write, guard = guard, lease = "30s")]
fn writing(locks: &Client) -> leasehold::Result<(Duration, Fence)> {
    let guard: &WriteGuard = guard;
    assert!(locks.rwlock("x").try_read()?.is_none());
    Ok((guard.lease(), guard.fence()))
}

#[locked(locks, "x", permits = 2, of = 2)]
fn both_permits(locks: &Client) -> leasehold::Result<bool> {
    Ok(locks.semaphore("x", 2).try_acquire()?.is_none())
}

#[test]
fn every_kind_has_its_lock() {
    let locks = client();
    assert_eq!(reading(&locks).unwrap(), (true, false));
    let (lease, first) = writing(&locks).unwrap();
    assert_eq!(lease, Duration::from_secs(30));
    assert!(writing(&locks).unwrap().1 > first);
    assert!(both_permits(&locks).unwrap());
}

#[locked(locks, "x", wait = "10ms", busy = Err(Problem::Busy))]
fn within(locks: &Client) -> Result<bool, Problem> {
    Ok(is_busy(locks))
}

#[locked(locks, "x", try, busy = Ok(None))]
fn tried(locks: &Client) -> leasehold::Result<Option<bool>> {
    Ok(Some(is_busy(locks)))
}

#[test]
fn busy_is_what_the_function_says_it_is() {
    let locks = client();
    let guard = locks.mutex("x").lock().unwrap();
    assert!(matches!(within(&locks), Err(Problem::Busy)));
    assert_eq!(tried(&locks).unwrap(), None);
    let _ = guard.release().unwrap();
    assert!(within(&locks).unwrap());
    assert_eq!(tried(&locks).unwrap(), Some(true));
    let _ = locks.shutdown(Duration::ZERO);
    assert_eq!(tried(&locks).unwrap_err().kind(), ErrorKind::Closed);
}

#[locked(locks, "x", lost = finish)]
fn loses(locks: &Client, done: &mut u8, fails: bool) -> Result<u8, Problem> {
    let ended = locks.evict("x", "a test")?;
    *done += 1;
    if fails {
        return Err(Problem::Body);
    }
    Ok(u8::try_from(ended).unwrap())
}

#[test]
fn a_loss_is_told_after_the_body() {
    let (locks, mut done) = (client(), 0);
    assert!(loses(&locks, &mut done, false).unwrap_err().is_lost());
    let failed = loses(&locks, &mut done, true);
    assert!(matches!(failed, Err(Problem::Body)));
    assert_eq!(done, 2, "both bodies ran to their end");
}
