//! Each option.

use std::time::Duration;

use leasehold::{Client, ErrorKind, Fence, Guard, WriteGuard, locked};

use crate::{Problem, client, is_busy};

#[locked(locks, "x")]
async fn alone(locks: &Client) -> leasehold::Result<bool> {
    Ok(is_busy(locks, "x").await)
}

#[tokio::test]
async fn the_body_has_the_lock_and_gives_it_back() {
    let locks = client().await;
    assert!(alone(&locks).await.unwrap());
    assert!(!is_busy(&locks, "x").await);
}

#[locked(locks, "x", read)]
async fn reading(locks: &Client) -> leasehold::Result<(bool, bool)> {
    let lock = locks.rwlock("x");
    let reads = lock.try_read().await?.is_some();
    Ok((reads, lock.try_write().await?.is_some()))
}

#[locked(locks, "x", write, guard = guard)]
async fn writing(locks: &Client) -> leasehold::Result<(bool, Fence)> {
    let guard: &WriteGuard = guard;
    let reads = locks.rwlock("x").try_read().await?.is_some();
    Ok((reads, guard.fence()))
}

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    let locks = client().await;
    assert_eq!(reading(&locks).await.unwrap(), (true, false));
    let (reads, first) = writing(&locks).await.unwrap();
    assert!(!reads);
    assert!(writing(&locks).await.unwrap().1 > first);
}

#[locked(locks, "x", permits = 2, of = 4)]
async fn two_of_four(locks: &Client) -> leasehold::Result<(bool, bool)> {
    let permits = locks.semaphore("x", 4);
    let three = permits.try_acquire_many(3).await?.is_some();
    Ok((permits.try_acquire_many(2).await?.is_some(), three))
}

#[locked(locks, "y", of = SLOTS)]
async fn one_of(locks: &Client) -> leasehold::Result<(bool, bool)> {
    let permits = locks.semaphore("y", SLOTS);
    let all = permits.try_acquire_many(SLOTS).await?.is_some();
    Ok((permits.try_acquire_many(SLOTS - 1).await?.is_some(), all))
}

const SLOTS: u32 = 3;

#[tokio::test]
async fn permits_are_those_that_are_written() {
    let locks = client().await;
    assert_eq!(two_of_four(&locks).await.unwrap(), (true, false));
    assert_eq!(one_of(&locks).await.unwrap(), (true, false));
}

#[locked(locks, "x", wait = "20ms", busy = Err(Problem::Busy))]
async fn within(locks: &Client) -> Result<u8, Problem> {
    Ok(7)
}

#[locked(locks, "x", wait = "1h", busy = Err(Problem::Busy))]
async fn patient(locks: &Client) -> Result<u8, Problem> {
    Ok(8)
}

#[locked(locks, "x", try, busy = Ok(None))]
async fn tried(locks: &Client) -> leasehold::Result<Option<bool>> {
    Ok(Some(is_busy(locks, "x").await))
}

#[tokio::test]
async fn busy_is_what_the_function_says_it_is() {
    let locks = client().await;
    let guard = locks.mutex("x").lock().await.unwrap();
    assert!(matches!(within(&locks).await, Err(Problem::Busy)));
    assert_eq!(tried(&locks).await.unwrap(), None);
    let (got, released) = tokio::join!(patient(&locks), guard.release());
    assert_eq!((got.unwrap(), released.is_ok()), (8, true));
    assert_eq!(within(&locks).await.unwrap(), 7);
    assert_eq!(tried(&locks).await.unwrap(), Some(true));
}

macro_rules! busy_kinds {
    ($($name:ident $lock:literal: $($option:ident $(= $value:literal)?),*;)*) => {$(
        #[locked(locks, $lock, try, busy = Ok(false), $($option $(= $value)?),*)]
        async fn $name(locks: &Client) -> leasehold::Result<bool> {
            Ok(true)
        }
    )*};
}

busy_kinds! {
    try_reading "x": read;
    try_writing "x": write;
    try_permits "p": permits = 2, of = 2;
}

#[locked(locks, "x", write, wait = "10ms", busy = Ok(false))]
async fn write_within(locks: &Client) -> leasehold::Result<bool> {
    Ok(true)
}

#[locked(locks, "p", of = 2, wait = "10ms", busy = Ok(false))]
async fn permit_within(locks: &Client) -> leasehold::Result<bool> {
    Ok(true)
}

#[tokio::test]
async fn every_kind_can_be_busy() {
    let locks = client().await;
    let writer = locks.rwlock("x").write().await.unwrap();
    assert!(!try_reading(&locks).await.unwrap());
    assert!(!write_within(&locks).await.unwrap());
    let reader = writer.downgrade().await.unwrap();
    assert!(try_reading(&locks).await.unwrap());
    assert!(!try_writing(&locks).await.unwrap());
    let _ = reader.release().await.unwrap();
    assert!(try_writing(&locks).await.unwrap());
    assert!(write_within(&locks).await.unwrap());
    let permit = locks.semaphore("p", 2).acquire().await.unwrap();
    assert!(!try_permits(&locks).await.unwrap());
    assert!(permit_within(&locks).await.unwrap());
    let rest = locks.semaphore("p", 2).acquire().await.unwrap();
    assert!(!permit_within(&locks).await.unwrap());
    drop((permit, rest));
}

#[locked(locks, "x", lease = "1m30s", guard = held)]
async fn leased(locks: &Client) -> leasehold::Result<Duration> {
    let held: &Guard = held;
    Ok(held.lease())
}

#[tokio::test]
async fn the_lease_is_the_one_that_is_written() {
    let locks = client().await;
    assert_eq!(leased(&locks).await.unwrap(), Duration::from_secs(90));
}

#[tokio::test]
async fn an_engine_that_refuses_is_the_functions_error() {
    let locks = client().await;
    let _ = locks.shutdown(Duration::ZERO).await;
    assert_eq!(alone(&locks).await.unwrap_err().kind(), ErrorKind::Closed);
    let refused = within(&locks).await.unwrap_err();
    assert!(matches!(refused, Problem::Locks(error) if error.kind() == ErrorKind::Closed));
}
