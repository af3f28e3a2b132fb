//! The line when the holder dies, and the claim that arrives then.

use std::fmt;

use leasehold::engine::Mode;
use leasehold::{Client, Fence, Result};

/// The line when the holder dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    Alone,
    /// Alone, and never renewed: the engine's keys are as the claim left them.
    Fixed,
    /// One claim of a live process waits.
    OneWaiter,
    /// Three of them.
    Crowd,
    /// A claim of the dead process waits behind its holder.
    DeadWaiter,
    /// Two dead readers, and a live writer waits.
    Readers,
    /// Two of three permits are held by the dead process, and a live claim waits for two.
    Permits,
}

/// The claim that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Claim,
    Try,
    /// Of a claim that waits.
    Heartbeat,
    /// Of a claim that waits.
    Release,
    Evict,
    Look,
}

impl Scene {
    pub(super) const ALL: [Self; 7] = [
        Self::Alone,
        Self::Fixed,
        Self::OneWaiter,
        Self::Crowd,
        Self::DeadWaiter,
        Self::Readers,
        Self::Permits,
    ];

    pub(super) fn is_mutex(self) -> bool {
        !matches!(self, Self::Readers | Self::Permits)
    }

    /// How many claims of live processes wait.
    pub(super) fn live(self) -> usize {
        match self {
            Self::Alone | Self::Fixed | Self::DeadWaiter => 0,
            Self::Crowd => 3,
            Self::OneWaiter | Self::Readers | Self::Permits => 1,
        }
    }

    /// The arrivals. Nothing waits where nothing is renewed: the lease would end before all are in line.
    pub(super) fn arrivals(self) -> [Arrival; 6] {
        use Arrival::{Claim, Evict, Heartbeat, Look, Release, Try};
        match self {
            Self::Fixed => [Claim, Try, Evict, Claim, Try, Look],
            _ => [Claim, Try, Heartbeat, Release, Evict, Look],
        }
    }

    /// How live claims ask: no two of them fit at a time, so their fences have an order.
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Readers => Mode::Write,
            Self::Permits => Mode::Permits { count: 2, of: 3 },
            _ => Mode::Mutex,
        }
    }

    /// Locks as live claims do, looks, and releases.
    pub(super) async fn lock(
        self,
        client: &Client,
        name: &str,
        look: impl FnOnce(Fence) + Send,
    ) -> Result<()> {
        match self {
            Self::Readers => {
                let guard = client.rwlock(name).strict().write().await?;
                look(guard.fence());
                let _ = guard.release().await?;
            }
            Self::Permits => {
                let guard = client.semaphore(name, 3).strict().acquire_many(2).await?;
                look(guard.fence());
                let _ = guard.release().await?;
            }
            _ => {
                let guard = client.mutex(name).strict().lock().await?;
                look(guard.fence());
                let _ = guard.release().await?;
            }
        }
        Ok(())
    }

    /// The same with a try; says whether it was granted.
    pub(super) async fn try_lock(
        self,
        client: &Client,
        name: &str,
        look: impl FnOnce(Fence) + Send,
    ) -> Result<bool> {
        match self {
            Self::Readers => {
                let Some(guard) = client.rwlock(name).try_write().await? else {
                    return Ok(false);
                };
                look(guard.fence());
                let _ = guard.release().await?;
            }
            Self::Permits => {
                let Some(guard) = client.semaphore(name, 3).try_acquire_many(2).await? else {
                    return Ok(false);
                };
                look(guard.fence());
                let _ = guard.release().await?;
            }
            _ => {
                let Some(guard) = client.mutex(name).try_lock().await? else {
                    return Ok(false);
                };
                look(guard.fence());
                let _ = guard.release().await?;
            }
        }
        Ok(true)
    }
}

impl Arrival {
    /// Whether it is the call of a claim that is in line already.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Heartbeat | Self::Release)
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "alone",
            Self::Fixed => "fixed",
            Self::OneWaiter => "one-waiter",
            Self::Crowd => "crowd",
            Self::DeadWaiter => "dead-waiter",
            Self::Readers => "readers",
            Self::Permits => "permits",
        })
    }
}
