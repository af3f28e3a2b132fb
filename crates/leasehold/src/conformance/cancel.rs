//! P9: a future dropped at any await leaves nothing held and no claim in line.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::client::Client;

/// Notes that it was woken.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    heard: tokio::sync::Notify,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.heard.notify_one();
    }
}

/// Polls a future at most `polls` times, each time only after it was woken, and then drops it. `between` runs after
/// the first time it was not ready. Says whether the future was ready.
pub(super) async fn poll_times<T>(
    s: &Subject,
    future: impl Future<Output = T> + Send,
    polls: usize,
    between: impl Future<Output = ()> + Send,
) -> Option<T> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    let mut between = Some(Box::pin(between));
    for _ in 0..polls {
        bell.rung.store(false, Ordering::SeqCst);
        // On a worker of the runtime, so that timers and budgets are those of a task.
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        if let Some(between) = between.take() {
            between.await;
        }
        s.eventually("P9: no lost wake-up", async || {
            let _ = tokio::time::timeout(Duration::from_millis(1), bell.heard.notified()).await;
            bell.rung
                .load(Ordering::SeqCst)
                .then_some(())
                .ok_or_else(|| "not woken".to_owned())
        })
        .await;
    }
    None
}

/// The line is empty, and another client can have the lock.
pub(super) async fn nothing_left(s: &Subject, other: &Client, name: &str) {
    s.idle(name).await;
    let guard = s
        .soon("P9: another client can have it", other.mutex(name).lock())
        .await;
    let _ = guard.expect("granted").release().await.expect("released");
}

/// Runs `attempt` for 0 polls, 1 poll, … until it says it was ready.
pub(super) async fn for_every_k(mut attempt: impl AsyncFnMut(usize) -> bool) {
    for polls in 0..1000 {
        if attempt(polls).await {
            return;
        }
    }
    panic!("P9: not ready after 1000 polls");
}

/// Locks and releases a few times: an engine may remember that no other client came.
async fn used_by(client: &Client, name: &str) {
    for _ in 0..3 {
        let guard = client.mutex(name).lock().await.expect("free");
        let _ = guard.release().await.expect("released");
    }
}

/// P9: an uncontended lock, dropped after every number of polls: of a name that is new to the client, and of one that it
/// has used.
pub async fn lock_at_every_await(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for used in [false, true] {
        for_every_k(async |polls| {
            if used {
                used_by(&a, &name).await;
            }
            let mutex = a.mutex(&name);
            let taken = poll_times(s, mutex.lock(), polls, std::future::ready(())).await;
            let ready = taken.is_some();
            drop(taken);
            nothing_left(s, &b, &name).await;
            ready
        })
        .await;
    }
}

/// P9, P11: a future that is neither polled nor dropped is in the way for at most a lease, and never in that of
/// other names.
pub async fn lock_that_is_never_polled_again(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for used in [false, true] {
        if used {
            used_by(&a, &name).await;
        }
        let mutex = a.mutex(&name);
        let mut asked = Box::pin(mutex.lock());
        // An engine that is near answers at once, and the guard is dropped here.
        let _ = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await;
        let other = s
            .soon("P9: another name", a.mutex(fresh_name()).lock())
            .await;
        drop(other.expect("granted"));
        let other = s.soon("P11: the same name", b.mutex(&name).lock()).await;
        drop(other.expect("granted"));
        drop(asked);
        nothing_left(s, &b, &name).await;
    }
}

/// P9: a lock that waits behind a holder, dropped while it waits.
pub async fn lock_while_waiting(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = b
        .mutex(&name)
        .lease(Duration::from_secs(60))
        .lock()
        .await
        .expect("free");
    let mutex = a.mutex(&name).lease(Duration::from_secs(60));
    let mut lock = Box::pin(mutex.lock());
    let first = std::future::poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx).is_pending())).await;
    assert!(first, "P1: granted beside a holder");
    s.eventually("it stands in line", async || {
        let pending =
            std::future::poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx).is_pending())).await;
        assert!(pending, "P1: granted beside a holder");
        match s.line(&name).await.map_or(0, |line| line.waiters.len()) {
            1 => Ok(()),
            waiters => Err(format!("{waiters} wait")),
        }
    })
    .await;
    drop(lock);
    s.waiting(&name, 0).await;
    assert_eq!(
        held.release().await.expect("released"),
        crate::Released::Released
    );
    nothing_left(s, &b, &name).await;
}

/// P9: a lock that waits and is granted, dropped after every number of polls, also between the grant and the poll
/// that would have returned it.
pub async fn lock_when_granted(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for_every_k(async |polls| {
        let held = b
            .mutex(&name)
            .lease(Duration::from_secs(60))
            .lock()
            .await
            .expect("free");
        let held = std::sync::Mutex::new(Some(held));
        let mutex = a.mutex(&name).lease(Duration::from_secs(60));
        let release = async {
            let guard = held.lock().expect("no panic").take();
            let _ = guard.expect("once").release().await.expect("released");
        };
        let taken = poll_times(s, mutex.lock(), polls, release).await;
        let ready = taken.is_some();
        drop(taken);
        drop(held.into_inner());
        nothing_left(s, &b, &name).await;
        ready
    })
    .await;
}

/// P9: tries, free and busy.
pub async fn try_lock_at_every_await(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for busy in [false, true] {
        for_every_k(async |polls| {
            let held = if busy {
                Some(b.mutex(&name).lock().await.expect("free"))
            } else {
                None
            };
            let mutex = a.mutex(&name);
            let taken = poll_times(s, mutex.try_lock(), polls, std::future::ready(())).await;
            let ready = taken.is_some();
            if let Some(taken) = &taken {
                assert_eq!(taken.as_ref().expect("a try").is_none(), busy, "P12");
            }
            drop((taken, held));
            nothing_left(s, &b, &name).await;
            ready
        })
        .await;
    }
}

/// P9: tasks that wait inside the process: a dropped one does not stop those behind.
pub async fn local_waiters(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for_every_k(async |polls| {
        let held = std::sync::Mutex::new(Some(a.mutex(&name).lock().await.expect("free")));
        let (mutex, behind) = (a.mutex(&name), a.mutex(&name));
        let release = async {
            #[expect(
                clippy::disallowed_methods,
                reason = "a check plays the part of a user's task"
            )]
            let behind =
                tokio::spawn(async move { behind.lock().await.expect("a turn").release().await });
            tokio::task::yield_now().await;
            let guard = held.lock().expect("no panic").take();
            let _ = guard.expect("once").release().await.expect("released");
            drop(behind);
        };
        let taken = poll_times(s, mutex.lock(), polls, release).await;
        let ready = taken.is_some();
        drop(taken);
        drop(held.into_inner());
        nothing_left(s, &b, &name).await;
        ready
    })
    .await;
}

/// P9: the other kinds.
pub async fn rwlock_and_semaphore(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    for_every_k(async |polls| {
        let lock = a.rwlock(&name);
        let (read, write) = (
            poll_times(s, lock.read(), polls, std::future::ready(())).await,
            poll_times(s, lock.try_write(), polls, std::future::ready(())).await,
        );
        let ready = read.is_some() && write.is_some();
        drop((read, write));
        s.idle(&name).await;
        let semaphore = a.semaphore(&name, 3);
        let permits = poll_times(s, semaphore.acquire_many(2), polls, std::future::ready(())).await;
        let ready = ready && permits.is_some();
        drop(permits);
        nothing_left(s, &b, &name).await;
        ready
    })
    .await;
}

/// P9, P18: several names; the ones taken before the drop are given back.
pub async fn multi(s: &Subject) {
    let ((a, b), x, y) = (s.two().await, fresh_name(), fresh_name());
    for_every_k(async |polls| {
        let held = std::sync::Mutex::new(Some(b.mutex(&y).lock().await.expect("free")));
        let both = a.multi([&x, &y]);
        let release = async {
            let guard = held.lock().expect("no panic").take();
            let _ = guard.expect("once").release().await.expect("released");
        };
        let taken = poll_times(s, both.lock(), polls, release).await;
        let ready = taken.is_some();
        drop(taken);
        drop(held.into_inner());
        nothing_left(s, &b, &x).await;
        nothing_left(s, &b, &y).await;
        ready
    })
    .await;
}

/// P9: a release that is dropped happens all the same, once.
pub async fn release_at_every_await(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    for used in [false, true] {
        for_every_k(async |polls| {
            let mutex = a.mutex(&name);
            let mutex = match used {
                true => {
                    used_by(&a, &name).await;
                    mutex
                }
                // So long that no lease ends it instead.
                false => mutex.lease(Duration::from_secs(60)),
            };
            let guard = mutex.lock().await.expect("free");
            let released = poll_times(s, guard.release(), polls, std::future::ready(())).await;
            nothing_left(s, &b, &name).await;
            released.is_some()
        })
        .await;
    }
}

/// P9, P24: a downgrade that is dropped gives the lock back.
pub async fn downgrade_at_every_await(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    for_every_k(async |polls| {
        let writer = a
            .rwlock(&name)
            .lease(Duration::from_secs(60))
            .write()
            .await
            .expect("free");
        let reader = poll_times(s, writer.downgrade(), polls, std::future::ready(())).await;
        let ready = reader.is_some();
        drop(reader);
        nothing_left(s, &b, &name).await;
        ready
    })
    .await;
}

/// P9: a time-out that races the grant: whichever wins, nothing is lost and nothing stays.
pub async fn lock_within_races_the_grant(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let (mut got, mut gave_up) = (0, 0);
    // A far engine takes its time; the race is about the moment of the grant, wherever that is.
    let (clock, before) = (
        crate::engine::Clock::boot(),
        crate::engine::Clock::boot().now(),
    );
    nothing_left(s, &b, &name).await;
    let unit = ((clock.now() - before) / 4).max(250);
    for round in 0..60_u64 {
        let held = b
            .mutex(&name)
            .lease(Duration::from_secs(60))
            .lock()
            .await
            .expect("free");
        let mutex = a.mutex(&name).lease(Duration::from_secs(60));
        // From too short for any engine to long enough for the slowest.
        let wait = mutex.lock_within(Duration::from_micros((unit / 8).max(20) << (round % 12)));
        let release = async {
            tokio::time::sleep(Duration::from_micros(round % 7 * unit * 6 / 5)).await;
            held.release().await
        };
        let (taken, released) = tokio::join!(wait, release);
        assert_eq!(released.expect("released"), crate::Released::Released, "P8");
        match taken {
            Ok(Some(guard)) => {
                got += 1;
                drop(guard);
            }
            Ok(None) => gave_up += 1,
            // P12: the engine had not answered when the time was over, so it is not known to be busy.
            Err(error) if error.kind() == crate::ErrorKind::TimedOut => gave_up += 1,
            Err(error) => panic!("P12: {error}"),
        }
        nothing_left(s, &b, &name).await;
    }
    assert!(
        got > 0 && gave_up > 0,
        "the race was never a race: {got} got it, {gave_up} gave up"
    );
}
