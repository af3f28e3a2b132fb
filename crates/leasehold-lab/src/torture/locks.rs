//! The locks, and each way to ask for them.

use std::time::Duration;

use leasehold::engine::{Guarantees, Query};
use leasehold::{Client, ErrorKind, Fence, Guard, Name, Owner};

use crate::Outcome;
use crate::history::{Call, Log, What};

/// How many turns a grant may serve in one process while another waits.
pub(crate) const TURNS: u32 = 4;

/// The names that are locked, and how.
pub(crate) const NAMES: [(&str, Kind); 7] = [
    ("mutex", Kind::Mutex),
    ("hot", Kind::Mutex),
    ("again", Kind::Reentrant),
    ("shared", Kind::ReadWrite),
    ("permits", Kind::Permits(3)),
    ("left", Kind::Mutex),
    ("both", Kind::Both),
];

/// The names that [`Kind::Both`] takes in one step; sorted, as the guards are.
pub(super) const BOTH: [&str; 2] = ["left", "right"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Permits(u32),
    /// Two names in one step.
    Both,
}

impl Kind {
    /// Whether an engine has it: not every one can let several hold a name together.
    pub(super) const fn fits(self, guarantees: &Guarantees) -> bool {
        match self {
            Self::ReadWrite => guarantees.readers,
            Self::Permits(_) => guarantees.shared,
            _ => true,
        }
    }
}

/// How long a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Some(Duration),
    Endless,
}

/// Asks in one of the ways there are.
pub(super) async fn lock(
    client: &Client,
    owner: &Owner,
    kind: Kind,
    call: &Call,
    patience: Patience,
    strict: bool,
) -> leasehold::Result<Option<Guard>> {
    match kind {
        Kind::Mutex | Kind::Reentrant | Kind::Both => {
            let mutex = client.mutex(&call.name);
            let mutex = match kind {
                Kind::Reentrant => mutex.owner(owner),
                _ if strict => mutex.strict(),
                _ => mutex,
            };
            match patience {
                Patience::None => mutex.try_lock().await,
                Patience::Some(patience) => mutex.lock_within(patience).await,
                Patience::Endless => mutex.lock().await.map(Some),
            }
        }
        Kind::ReadWrite if call.weight == 1 => {
            let lock = client.rwlock(&call.name);
            let lock = if strict { lock.strict() } else { lock };
            match patience {
                Patience::None => lock.try_read().await,
                Patience::Some(patience) => lock.read_within(patience).await,
                Patience::Endless => lock.read().await.map(Some),
            }
        }
        Kind::ReadWrite => {
            let lock = client.rwlock(&call.name);
            let lock = if strict { lock.strict() } else { lock };
            let guard = match patience {
                Patience::None => lock.try_write().await?,
                Patience::Some(patience) => lock.write_within(patience).await?,
                Patience::Endless => Some(lock.write().await?),
            };
            Ok(guard.map(Guard::from))
        }
        Kind::Permits(all) => {
            let lock = client.semaphore(&call.name, all);
            let lock = if strict { lock.strict() } else { lock };
            match patience {
                Patience::None => lock.try_acquire_many(call.weight).await,
                Patience::Some(patience) => lock.acquire_many_within(call.weight, patience).await,
                Patience::Endless => lock.acquire_many(call.weight).await.map(Some),
            }
        }
    }
}

/// Takes all there is of a name.
pub(crate) async fn take_whole(
    client: &Client,
    name: &str,
    kind: Kind,
) -> leasehold::Result<Guard> {
    match kind {
        Kind::Mutex | Kind::Reentrant | Kind::Both => client.mutex(name).lock().await,
        Kind::ReadWrite => client.rwlock(name).write().await.map(Guard::from),
        Kind::Permits(all) => client.semaphore(name, all).acquire_many(all).await,
    }
}

/// How often an eviction is asked for again: a worker may stand still inside a transaction for as long as a pause lasts.
const ASKED_AGAIN: usize = 10;

/// Takes away the grant of this fence; whether it did, or may have. By its fence a lock is taken away once, however often
/// that is asked for.
async fn evict(client: &Client, name: &str, fence: Fence) -> Outcome<bool> {
    let mut perhaps = false;
    for _ in 0..ASKED_AGAIN {
        match client.evict_fence(name, fence, "the lab").await {
            Ok(count) => return Ok(count > 0 || perhaps),
            Err(error) => match error.kind() {
                ErrorKind::Unavailable | ErrorKind::TimedOut => {
                    perhaps |= error.may_have_happened();
                }
                _ => return Err(error.into()),
            },
        }
    }
    let what = format!("no eviction of {name} in {ASKED_AGAIN} times");
    Err(what.into())
}

/// Takes one grant of a name away from its holder, if there is any; whether it did.
pub(crate) async fn take_away(client: &Client, name: &str, log: &Log) -> Outcome<bool> {
    let lines = client.inspect(&Query::name(Name::new(name)?)).await;
    let lines = match lines {
        Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(false),
        lines => lines?,
    };
    let Some(fence) = lines.first().and_then(|line| line.holders.first()?.fence) else {
        return Ok(false);
    };
    let since = log.now();
    let taken = evict(client, name, fence).await?;
    if taken {
        log.note(
            0,
            What::Taken {
                name: name.into(),
                fence: fence.get(),
                since,
            },
        );
    }
    Ok(taken)
}
