//! P30: values that one process of a fleet loads.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::cancel::{for_every_k, nothing_left, poll_times};
use super::{Subject, fresh_name};
use crate::client::Client;
use crate::engine::Clock;
use crate::error::{Error, ErrorKind};
use crate::kinds::{Cached, LoadError};
use crate::options::ConnectOptions;

const LONG: Duration = Duration::from_secs(600);

/// Ends exactly at its ttl, and every request looks at the store.
fn exact(client: &Client, name: &str) -> Cached<String> {
    let cached = client.cached(name).ttl(LONG).local(Duration::ZERO);
    cached.ttl_jitter(0.0).early(0.0)
}

/// A load that must not happen.
async fn no_load() -> Result<Option<String>, Error> {
    panic!("P30: loaded again")
}

async fn told(cached: &Cached<String>) -> Option<String> {
    let value = cached.get_or_load(no_load).await.expect("P30: it is there");
    value.map(|value| value.to_string())
}

/// P30: of many who miss in two clients one loads, and all are told what it loaded, also if it is nothing.
pub async fn one_of_many_misses_loads(s: &Subject) {
    let (a, b) = s.two().await;
    for there in [true, false] {
        let (name, loads) = (fresh_name(), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for request in 0..40 {
            let client = if request % 2 == 0 { &a } else { &b };
            let (cached, loads) = (client.cached::<String>(&name).ttl(LONG), loads.clone());
            let _ = tasks.spawn(async move {
                let load = async || {
                    let _ = loads.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok::<_, Error>(there.then(|| "5".to_owned()))
                };
                let value = cached.get_or_load(load).await.expect("P30: told");
                assert_eq!(value.is_some_and(|value| *value == "5"), there, "P30");
            });
        }
        let _ = s.soon("P30: all are told", tasks.join_all()).await;
        assert_eq!(loads.load(Ordering::Relaxed), 1, "P30: loads in the fleet");
        let value = told(&s.client().await.cached(&name)).await;
        assert_eq!(value.is_some(), there, "P30: the store has it");
        s.idle(&format!("cached:{name}")).await;
    }
}

/// P30: a load that failed is told to those who waited for it and is not kept; a value ends after its ttl, and "nothing there" after
/// its own.
pub async fn failures_are_not_kept_and_values_end(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let cached = exact(&a, &name);
    let failed = cached.get_or_load(async || Err::<Option<String>, _>("down"));
    match failed.await {
        Err(LoadError::Load(why)) => assert_eq!(*why, "down", "P30"),
        other => panic!("P30: a load that failed: {other:?}"),
    }
    let short = Duration::from_millis(200);
    for cached in [cached.clone().ttl(short), cached.ttl_of_nothing(short)] {
        let nothing = async || Ok::<_, Error>(None);
        let value = cached.get_or_load(nothing).await.expect("loaded");
        assert_eq!(value, None, "P30: a failure was kept");
        let load = async || Ok::<_, Error>(Some("1".to_owned()));
        s.eventually("P30: it ends", async || {
            let value = cached.get_or_load(load).await.expect("loaded");
            value.map(drop).ok_or_else(|| "nothing there".to_owned())
        })
        .await;
        cached.forget().await.expect("forgotten");
    }
    let zero = a.cached::<String>(&name).ttl(Duration::ZERO);
    let part = a.cached::<String>(&name).early(1.5);
    for bad in [zero, part] {
        match bad.get_or_load(no_load).await {
            Err(LoadError::Lock(error)) => assert_eq!(error.kind(), ErrorKind::Invalid),
            other => panic!("P30: a setting out of range: {other:?}"),
        }
    }
}

/// P30: while one reloads an old value the others are told it, in both processes; a reload that fails leaves it.
pub async fn the_old_value_is_told_while_one_reloads(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let old = exact(&a, &name).ttl(Duration::from_millis(50)).stale(LONG);
    let load = async || Ok::<_, Error>(Some("old".to_owned()));
    let _ = old.get_or_load(load).await.expect("loaded");
    let failures = AtomicUsize::new(0);
    s.eventually("P30: a reload fails", async || {
        let load = async || {
            let _ = failures.fetch_add(1, Ordering::Relaxed);
            Err::<Option<String>, _>("down")
        };
        let value = exact(&a, &name).get_or_load(load).await;
        assert_eq!(
            value.expect("P30: told").as_deref().map(String::as_str),
            Some("old")
        );
        match failures.load(Ordering::Relaxed) {
            0 => Err("still fresh".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let (begun, go) = (Semaphore::new(0), Semaphore::new(0));
    let ours = exact(&a, &name);
    let reload = ours.get_or_load(async || {
        begun.add_permits(1);
        let _ = go.acquire().await;
        Ok::<_, Error>(Some("new".to_owned()))
    });
    let meanwhile = async {
        let _ = begun.acquire().await.expect("open");
        for client in [&a, &b] {
            let value = s.soon("P30: told at once", told_by(client, &name)).await;
            assert_eq!(value.as_deref(), Some("old"), "P30: while one reloads");
        }
        go.add_permits(1);
    };
    let both = s.soon("P30: reloaded", async { tokio::join!(reload, meanwhile) });
    let (new, ()) = both.await;
    assert_eq!(
        new.expect("loaded").as_deref().map(String::as_str),
        Some("new")
    );
    for client in [&a, &b] {
        assert_eq!(told_by(client, &name).await.as_deref(), Some("new"), "P30");
    }
}

async fn told_by(client: &Client, name: &str) -> Option<String> {
    told(&exact(client, name)).await
}

/// P30: a value is reloaded before its end, and what a process holds is looked at again after it was forgotten elsewhere.
pub async fn values_are_reloaded_early_and_forgotten(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let minute = exact(&a, &name).ttl(Duration::from_secs(60)).early(1.0);
    let loads = AtomicUsize::new(0);
    let load = async || {
        let _ = loads.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Error>(Some("1".to_owned()))
    };
    s.eventually("P30: reloaded before its end", async || {
        let _ = minute.get_or_load(load).await.expect("told");
        match loads.load(Ordering::Relaxed) {
            0 | 1 => Err("loaded once".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let held = a.cached::<String>(&name).local(Duration::from_millis(50));
    let held = held.early(0.0);
    let _ = held.get_or_load(load).await.expect("told");
    exact(&b, &name).forget().await.expect("forgotten");
    let before = loads.load(Ordering::Relaxed);
    s.eventually("P30: forgotten", async || {
        let _ = held.get_or_load(load).await.expect("told");
        match loads.load(Ordering::Relaxed) - before {
            0 => Err("held".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
}

/// P30: a time beyond what a clock counts is the longest that a store keeps.
pub async fn the_longest_time_is_kept(s: &Subject) {
    let (a, b) = s.two().await;
    let longest = |client: &Client, name: &str| {
        let cached = exact(client, name).ttl(Duration::MAX);
        cached.stale(Duration::MAX).ttl_of_nothing(Duration::MAX)
    };
    for there in [true, false] {
        let name = fresh_name();
        for cached in [longest(&a, &name), longest(&a, &name).local(Duration::MAX)] {
            let load = async || Ok::<_, Error>(there.then(|| "1".to_owned()));
            let value = cached.get_or_load(load).await.expect("loaded");
            assert_eq!(value.is_some(), there, "P30");
            let value = told(&longest(&b, &name)).await;
            assert_eq!(value.is_some(), there, "P30: another client");
            cached.forget().await.expect("forgotten");
        }
    }
}

/// P30: ages are the store's: a client whose wall clock is wrong reloads nothing that is fresh.
pub async fn a_wrong_wall_clock_reloads_nothing(s: &Subject) {
    const YEARS: i64 = 20 * 365 * 86_400_000_000;
    let (a, name) = (s.client().await, fresh_name());
    let load = async || Ok::<_, Error>(Some("1".to_owned()));
    let _ = exact(&a, &name).get_or_load(load).await.expect("loaded");
    for wrong in [YEARS, -YEARS] {
        let clock = Clock::simulated();
        clock.set_wall(wrong);
        let client = s.client_with(ConnectOptions::new().clock(clock)).await;
        let cached = exact(&client, &name);
        for _ in 0..3 {
            assert_eq!(told(&cached).await.as_deref(), Some("1"), "P30");
        }
        let ends = client.cached::<String>(fresh_name());
        let ends = ends.ttl(Duration::from_millis(50)).local(Duration::ZERO);
        let _ = ends.get_or_load(load).await.expect("loaded");
        s.eventually("P30: it ends", async || {
            let again = async || Ok::<_, Error>(Some("2".to_owned()));
            let value = ends.get_or_load(again).await.expect("told");
            match value.as_deref().map(String::as_str) {
                Some("2") => Ok(()),
                old => Err(format!("{old:?}")),
            }
        })
        .await;
    }
}

/// P30: a loader that lost its lock writes nothing over a later value, and tells the later one.
pub async fn a_late_loader_writes_nothing(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let (tell, begun) = tokio::sync::oneshot::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (late, patience) = (exact(&a, &name), s.patience);
    let mut tasks = tokio::task::JoinSet::new();
    let _ = tasks.spawn(async move {
        let load = async move || {
            tell.send(()).expect("the check listens");
            // The process stands still, and looks at nothing before it goes on.
            let waited = tokio::task::block_in_place(|| wait.recv_timeout(patience));
            waited.expect("in time");
            Ok::<_, Error>(Some("late".to_owned()))
        };
        late.get_or_load(load).await
    });
    s.soon("the load begins", begun).await.expect("begun");
    let lock = format!("cached:{name}");
    assert_eq!(b.evict(&lock, "a check").await.expect("evicted"), 1);
    let load = async || Ok::<_, Error>(Some("new".to_owned()));
    let newer = exact(&b, &name);
    let newer = s.soon("P30: loaded again", newer.get_or_load(load)).await;
    assert_eq!(
        newer.expect("loaded").as_deref().map(String::as_str),
        Some("new")
    );
    go.send(()).expect("the loader listens");
    let late = s
        .soon("P30: told", tasks.join_next())
        .await
        .expect("a task");
    let late = late.expect("no panic").expect("P30: the later value");
    assert_eq!(
        late.as_deref().map(String::as_str),
        Some("new"),
        "P30: a late value"
    );
    for client in [&a, &b] {
        assert_eq!(told_by(client, &name).await.as_deref(), Some("new"), "P30");
    }
}

/// P9, P30: a request that is dropped at any await leaves no lock, and the next one is told the value.
pub async fn a_miss_at_every_await(s: &Subject) {
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let name = fresh_name();
        let (cached, lock) = (exact(&a, &name), format!("cached:{name}"));
        let load = async || {
            tokio::task::yield_now().await;
            Ok::<_, Error>(Some("1".to_owned()))
        };
        let ended = poll_times(s, cached.get_or_load(load), polls, ready(())).await;
        nothing_left(s, &b, &lock).await;
        let next = s.soon("P9: the next request", cached.get_or_load(load));
        assert!(next.await.expect("told").is_some(), "P30");
        let forgotten = poll_times(s, cached.forget(), polls, ready(())).await;
        nothing_left(s, &b, &lock).await;
        ended.is_some() && forgotten.is_some()
    })
    .await;
}
