//! P29: work that is done once per key.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::cancel::{for_every_k, nothing_left, poll_times};
use super::{Subject, fresh_name};
use crate::error::{ErrorKind, Result};
use crate::fence::Fence;
use crate::guard::Guard;
use crate::kinds::{OnceError, Ran};
use crate::name::Name;
use crate::options::ConnectOptions;
use crate::store::{Entry, Fenced, Store};

const LONG: Duration = Duration::from_secs(600);

/// P29: of many requests of two clients one does the work, and the others are told its result, when and by which process.
pub async fn one_of_many_requests_does_the_work(s: &Subject) {
    let ((a, b), key) = (s.two().await, fresh_name());
    let worked = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for request in 0..8 {
        let client = if request % 2 == 0 { &a } else { &b };
        let (once, worked) = (client.once(&key, LONG), worked.clone());
        let once = if request < 4 {
            once
        } else {
            once.at_most_once()
        };
        let _ = tasks.spawn(async move {
            let ran = once.run(async |_: &Guard| {
                let _ = worked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok::<_, ()>("5")
            });
            match ran.await.expect("P29: ran or done") {
                Ran::Done(_) => true,
                Ran::AlreadyDone(done) => {
                    assert_eq!(done.result, b"5", "P29: another result");
                    assert!(done.by.contains(&std::process::id().to_string()), "P29");
                    false
                }
                other => panic!("P29: {other:?}"),
            }
        });
    }
    let ran = s.soon("P29: all are answered", tasks.join_all()).await;
    let did = ran.into_iter().filter(|did| *did).count();
    assert_eq!((did, worked.load(Ordering::Relaxed)), (1, 1), "P29");
    s.idle(&format!("once:{key}")).await;
}

/// P29: a run that failed, or was dropped, is not done; one at most once that was dropped is interrupted until it is forgotten.
pub async fn a_failed_run_is_not_done(s: &Subject) {
    let (a, key) = (s.client().await, fresh_name());
    for once in [a.once(&key, LONG).at_most_once(), a.once(&key, LONG)] {
        let failed = once.run(async |_| Err::<&str, _>("failed")).await;
        assert!(matches!(failed, Err(OnceError::Work("failed"))), "P29");
    }
    let (least, most) = (a.once(&key, LONG), a.once(&key, LONG).at_most_once());
    let (tell, begun) = tokio::sync::oneshot::channel();
    let hangs = most.run(async move |_| {
        tell.send(()).expect("the check listens");
        std::future::pending::<Result<&str, ()>>().await
    });
    s.soon("P29: the work begins", async {
        tokio::select! { _ = hangs => panic!("P29: ended"), begun = begun => begun }
    })
    .await
    .expect("begun");
    let again = s.soon("P29: told", most.run(async |_| Ok::<_, ()>("")));
    let again = again.await.expect("told");
    assert!(matches!(again, Ran::Interrupted(_)), "P29: {again:?}");
    s.soon("forgotten", most.forget()).await.expect("forgotten");
    let again = most.run(async |_| Ok::<_, ()>("most")).await.expect("ran");
    assert_eq!(again, Ran::Done("most"), "P29: after it was forgotten");
    least.forget().await.expect("forgotten");
    let again = least
        .run(async |_| Ok::<_, ()>("least"))
        .await
        .expect("ran");
    assert_eq!(again, Ran::Done("least"), "P29");
}

/// P29: a request that comes meanwhile is told so or waits, and a run that lost its lock notes nothing over a later one.
pub async fn requests_meanwhile_and_late_notes(s: &Subject) {
    let ((a, b), key) = (s.two().await, fresh_name());
    let (ours, theirs) = (a.once(&key, LONG), b.once(&key, LONG));
    let first = Mutex::new(None);
    let failed = ours.run(async |guard: &Guard| {
        let meanwhile = theirs.try_run(async |_| Ok::<_, ()>("")).await;
        assert_eq!(meanwhile.expect("tried"), Ran::InProgress, "P29");
        let (name, fence) = (guard.name().clone(), guard.fence());
        *first.lock().expect("no panic") = Some((name.clone(), fence));
        let evicted = b.evict(&name, "a check").await.expect("evicted");
        assert_eq!(evicted, 1);
        std::future::pending::<Result<&str, ()>>().await
    });
    match s.soon("P29: told of the loss", failed).await {
        Err(OnceError::Lock(failed)) => assert_eq!(failed.error.kind(), ErrorKind::Lost),
        other => panic!("P29: a run without its lock: {other:?}"),
    }
    let later = s.soon(
        "P29: done again",
        theirs.run(async |_| Ok::<_, ()>("later")),
    );
    assert_eq!(later.await.expect("ran"), Ran::Done("later"), "P29");
    let (name, fence) = first.into_inner().expect("no panic").expect("it ran");
    let late = s.store.put(&name, fence, Some(b"done x\nlate"), None).await;
    assert!(late.expect("answered").is_err(), "P29: a late note");
    match ours.run(async |_| Ok::<_, ()>("")).await {
        Ok(Ran::AlreadyDone(done)) => assert_eq!(done.result, b"later", "P29"),
        other => panic!("P29: {other:?}"),
    }
    let short = a.once(fresh_name(), Duration::from_millis(200));
    let ran = short.run(async |_| Ok::<_, ()>("")).await.expect("ran");
    assert_eq!(ran, Ran::Done(""));
    s.eventually("P29: done again after its time", async || {
        match short.run(async |_| Ok::<_, ()>("again")).await {
            Ok(Ran::Done(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// P29: a duplicate is refused in one round trip: one read of the store, and no lock, which another client holds.
pub async fn a_duplicate_costs_one_round_trip(s: &Subject) {
    let counted = Arc::new(Counted(s.store.clone(), AtomicUsize::new(0)));
    let engine = s.engine.clone();
    let a = ConnectOptions::new()
        .store(counted.clone())
        .open(engine)
        .await;
    let (a, b, key) = (a.expect("a session"), s.client().await, fresh_name());
    let ran = b.once(&key, LONG).run(async |_| Ok::<_, ()>("")).await;
    assert_eq!(ran.expect("ran"), Ran::Done(""));
    let held = b.mutex(format!("once:{key}")).lock().await.expect("free");
    let once = a.once(&key, LONG);
    let told = s.soon("P29: needs no lock", once.run(async |_| Ok::<_, ()>("")));
    assert!(matches!(told.await, Ok(Ran::AlreadyDone(_))), "P29");
    assert_eq!(counted.1.load(Ordering::Relaxed), 1, "P29: one round trip");
    let _ = held.release().await.expect("released");
    let refused = a.once(&key, Duration::ZERO);
    match refused.run(async |_| Ok::<_, ()>("")).await {
        Err(OnceError::Lock(failed)) => assert_eq!(failed.error.kind(), ErrorKind::Invalid),
        other => panic!("P29: kept for no time: {other:?}"),
    }
}

/// P9, P29: a request that is dropped at any await leaves no lock; the next one does the work, or is told what became of it.
pub async fn a_request_at_every_await(s: &Subject) {
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let mut all = true;
        for most in [false, true] {
            let (key, worked) = (fresh_name(), AtomicUsize::new(0));
            let [ours, theirs] = [&a, &b].map(|client| match client.once(&key, LONG) {
                once if most => once.at_most_once(),
                once => once,
            });
            let work = async |_: &Guard| {
                let _ = worked.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok::<_, ()>("1")
            };
            let lock = format!("once:{key}");
            let ran = poll_times(s, ours.run(work), polls, ready(())).await;
            nothing_left(s, &b, &lock).await;
            let next = s.soon("P9: the next request", theirs.run(work)).await;
            let (next, worked) = (next.expect("told"), worked.load(Ordering::SeqCst));
            match (&next, most) {
                (Ran::Done(_) | Ran::Interrupted(_), true) => {
                    assert!(
                        ran.is_none() && worked <= 1,
                        "P29: {worked} times: {next:?}"
                    );
                }
                (Ran::Done(_), false) => assert!(ran.is_none(), "P29: done twice"),
                (Ran::AlreadyDone(_), _) => assert_eq!(worked, 1, "P29"),
                _ => panic!("P29: {next:?}"),
            }
            let forgot = poll_times(s, ours.forget(), polls, ready(())).await;
            nothing_left(s, &b, &lock).await;
            all &= ran.is_some() && forgot.is_some();
        }
        all
    })
    .await;
}

/// P29, P31: a time beyond what a clock counts is the longest that a store keeps.
pub async fn the_longest_time_is_kept(s: &Subject) {
    let (a, key) = (s.client().await, fresh_name());
    for once in [a.once(&key, Duration::MAX), a.once(&key, LONG * 1_000_000)] {
        let ran = once.run(async |_| Ok::<_, ()>("1")).await.expect("ran");
        assert_eq!(ran, Ran::Done("1"), "P29");
        let again = once.run(async |_| Ok::<_, ()>("2")).await.expect("ran");
        assert!(matches!(again, Ran::AlreadyDone(_)), "P29: {again:?}");
        once.forget().await.expect("forgotten");
    }
    let latch = a.latch(&key, 2).keep(Duration::MAX);
    assert_eq!(latch.count_down().await.expect("counted"), 1, "P31");
    assert_eq!(latch.left().await.expect("read"), 1, "P31");
}

/// A store that counts its calls.
#[derive(Debug)]
struct Counted(Arc<dyn Store>, AtomicUsize);

impl Counted {
    fn inner(&self) -> &dyn Store {
        let _ = self.1.fetch_add(1, Ordering::Relaxed);
        &*self.0
    }
}

#[async_trait]
impl Store for Counted {
    async fn get(&self, key: &Name) -> Result<Option<Entry>> {
        self.inner().get(key).await
    }

    async fn show(&self, key: &Name, fence: Fence) -> Result<Fenced<Option<Entry>>> {
        self.inner().show(key, fence).await
    }

    async fn put(
        &self,
        key: &Name,
        fence: Fence,
        value: Option<&[u8]>,
        keep: Option<Duration>,
    ) -> Result<Fenced<()>> {
        self.inner().put(key, fence, value, keep).await
    }

    fn location(&self) -> String {
        self.0.location()
    }
}
