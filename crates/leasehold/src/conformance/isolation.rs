//! P7: one name that cannot be used costs no other name of the same client anything.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::client::Client;
use crate::engine::Clock;
use crate::guard::{Guard, Released};

/// How one name is made unusable: stuck, damaged, foreign, or on a server that says nothing.
///
/// ```
/// use leasehold::conformance::isolation::Spoil;
///
/// let spoil = Spoil::new(|name| println!("{name} is stuck until this is dropped"));
/// # let _ = spoil;
/// ```
#[derive(Clone)]
pub struct Spoil {
    spoil: Arc<dyn Fn(&str) -> Undo + Send + Sync>,
    spares: Arc<Spares>,
}

type Undo = Box<dyn Any + Send>;
type Spares = dyn Fn(&str, &str) -> bool + Send + Sync;

impl Spoil {
    /// The function gets a name that is held, and makes it unusable until its answer is dropped.
    pub fn new<U: Any + Send>(spoil: impl Fn(&str) -> U + Send + Sync + 'static) -> Self {
        Self {
            spoil: Arc::new(move |name| Box::new(spoil(name))),
            spares: Arc::new(|_, _| true),
        }
    }

    /// For what spoils more than one name: whether, when the first is spoiled, the second is not.
    #[must_use]
    pub fn sparing(mut self, spares: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        self.spares = Arc::new(spares);
        self
    }

    fn other(&self, bad: &str) -> String {
        let names = std::iter::repeat_with(fresh_name);
        let mut spared = names.filter(|name| (self.spares)(bad, name));
        spared.next().expect("some name is spared")
    }
}

impl fmt::Debug for Spoil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spoil")
    }
}

/// How many names are held beside the one that is spoiled.
const HELD: usize = 3;
/// How many claims wait for that name when it is spoiled: more than a lease has heartbeats.
const WAITING: usize = 12;
/// How long a lock on another name may take: many times what a busy machine needs.
const IN_TIME: Duration = Duration::from_secs(5);

/// P7: other locks of the client stay held for three leases, and other names are granted in time, while one name is
/// unusable and many tasks ask for it. Without [`Subject::spoil`] there is nothing to check.
pub async fn one_bad_name_costs_no_other(s: &Subject) {
    let Some(spoil) = &s.spoil else { return };
    let (client, bad) = (s.client().await, fresh_name());
    let mut held = Vec::new();
    for _ in 0..HELD {
        let name = spoil.other(&bad);
        held.push(
            client
                .mutex(name)
                .lease(s.lease)
                .lock()
                .await
                .expect("free"),
        );
    }
    let lost = client
        .mutex(&bad)
        .lease(s.lease)
        .lock()
        .await
        .expect("free");
    let mut asking: Vec<_> = (0..WAITING)
        .map(|_| wait_in_line(&client, &bad, s.lease))
        .collect();
    // A round trip after theirs.
    in_time(s, &client, spoil.other(&bad)).await;
    let spoiled = (spoil.spoil)(&bad);
    asking.extend((0..HELD).map(|_| ask_again_and_again(&client, &bad, s.lease)));
    let clock = Clock::boot();
    let end = clock.now() + u64::try_from((s.lease * 3).as_micros()).expect("short");
    while clock.now() < end {
        for guard in &held {
            let kept = guard.check();
            kept.unwrap_or_else(|error| panic!("P7: lost for another name's sake: {error}"));
        }
        in_time(s, &client, spoil.other(&bad)).await;
        tokio::time::sleep(s.lease / 10).await;
    }
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    drop(spoiled);
    for guard in held {
        assert_eq!(guard.release().await.expect("released"), Released::Released);
    }
    drop(lost);
    let again = s.eventually("P11: the name can be used again", async || {
        let tried = s.soon("a try", client.mutex(&bad).try_lock()).await;
        let tried = tried.map_err(|error| error.to_string())?;
        tried.ok_or_else(|| "busy".to_owned())
    });
    drop(again.await);
}

/// A claim that waits for the name, each at the engine.
#[expect(
    clippy::disallowed_methods,
    reason = "a check plays the part of a user's task"
)]
fn wait_in_line(client: &Client, bad: &str, lease: Duration) -> tokio::task::JoinHandle<()> {
    let mutex = client.mutex(bad).lease(lease).strict();
    tokio::spawn(async move {
        // Refused, once the name is spoiled.
        while mutex.lock().await.is_err() {
            tokio::time::sleep(lease / 4).await;
        }
    })
}

/// Asks for the name that is spoiled, so that what is stuck there is much.
#[expect(
    clippy::disallowed_methods,
    reason = "a check plays the part of a user's task"
)]
fn ask_again_and_again(client: &Client, bad: &str, lease: Duration) -> tokio::task::JoinHandle<()> {
    let mutex = client.mutex(bad).lease(lease).strict();
    tokio::spawn(async move {
        loop {
            let patience = Duration::from_millis(50);
            let asked: Option<Guard> = mutex.lock_within(patience).await.unwrap_or(None);
            drop(asked);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// A name of its own is granted and given back in time.
async fn in_time(s: &Subject, client: &Client, name: String) {
    let clock = Clock::boot();
    let before = clock.now();
    let mutex = client.mutex(&name);
    let guard = s.soon("P7: another name is granted", mutex.lock()).await;
    let guard = guard.expect("P7: another name is granted");
    let _ = s.soon("released", guard.release()).await.expect("released");
    let took = Duration::from_micros(clock.now() - before);
    assert!(took < IN_TIME, "P7: another name took {took:?}");
}
