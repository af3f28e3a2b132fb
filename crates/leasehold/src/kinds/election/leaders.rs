//! The leader as others see it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use tokio::time::{Interval, MissedTickBehavior};

use super::Election;
use crate::engine::Identity;
use crate::error::Result;
use crate::fence::Fence;

/// The leader at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Its term.
    pub term: Fence,
    /// Its process, where the engine knows it: a leader of another library, on a shared layout, may name none.
    pub who: Option<Identity>,
    /// When it joined the line.
    pub since: SystemTime,
    pub(super) shown: Option<String>,
}

impl Leader {
    /// What the leader shows: its [value](Election::value), or without one its client's [command](Identity::called).
    pub fn value(&self) -> Option<&str> {
        let called = self.who.as_ref().map(|who| who.command.as_str());
        self.shown.as_deref().or(called)
    }
}

/// The leaders of an election, one after the other: a [`Stream`] that never ends.
pub struct Leaders {
    name: String,
    /// None while one is being told.
    looks: Option<Box<Looks>>,
    telling: Option<Telling>,
}

/// One leader being looked for.
type Telling = Pin<Box<dyn Future<Output = (Box<Looks>, Told)> + Send>>;

type Told = Result<Option<Leader>>;

impl Leaders {
    pub(super) fn of(election: Election) -> Self {
        Self {
            name: election.name.clone(),
            looks: Some(Box::new(Looks {
                election,
                ticks: None,
                last: None,
                failing: false,
            })),
            telling: None,
        }
    }

    /// Waits until there is another leader than the last one told, or none any more; the first call answers at once. A leader whose
    /// [value](Election::value) was not there yet is told again with it.
    ///
    /// # Ordering
    /// Terms only grow.
    /// # Cancel safety
    /// May be dropped and called again at any time: nothing that it would have told is forgotten.
    /// # Errors
    /// If the engine or the store cannot be read: told once, then it goes on looking until it can.
    /// # Not promised
    /// A term shorter than the time between two looks may not be told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.election("scheduler").observe().next().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        poll_fn(|context| self.tell(context)).await
    }

    fn tell(&mut self, context: &mut Context<'_>) -> Poll<Told> {
        if let Some(mut looks) = self.looks.take() {
            self.telling = Some(Box::pin(async move {
                let told = looks.next().await;
                (looks, told)
            }));
        }
        let telling = self.telling.as_mut().expect("looked for or told");
        let (looks, told) = ready!(telling.as_mut().poll(context));
        (self.looks, self.telling) = (Some(looks), None);
        Poll::Ready(told)
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Leader>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().tell(context).map(Some)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaders of {:?}", self.name)
    }
}

/// Looks at an election, again and again.
struct Looks {
    election: Election,
    ticks: Option<Interval>,
    /// The answer told last; none before the first.
    last: Option<Option<Leader>>,
    failing: bool,
}

impl Looks {
    async fn next(&mut self) -> Told {
        let lease = self.election.lease;
        let ticks = self.ticks.get_or_insert_with(|| {
            let every = (lease / 10).clamp(Election::PAUSE, Duration::from_secs(1));
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        loop {
            let _ = ticks.tick().await;
            match self.election.leader().await {
                Ok(now) => {
                    self.failing = false;
                    if self.last.as_ref().map(told) != Some(told(&now)) {
                        self.last = Some(now.clone());
                        return Ok(now);
                    }
                }
                Err(error) if error.is_transient() && self.failing => {}
                Err(error) => {
                    self.failing = true;
                    return Err(error);
                }
            }
        }
    }
}

/// What is told of a leader: another of these is another answer.
fn told(leader: &Option<Leader>) -> Option<(Fence, Option<&str>)> {
    let leader = leader.as_ref()?;
    Some((leader.term, leader.shown.as_deref()))
}
