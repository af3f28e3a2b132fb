//! One name, the call that arrives at it, and how it goes on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::engine::{Claim, ClaimView, Clock, LineView, Query, Standing};
use leasehold::{Fence, Name as LockName, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Cast;
use super::scene::{Arrival, Scene};
use crate::bed::beat;

/// How long a lock may take to pass on after its holder's lease: many times what a busy machine needs, where 252 names at once go
/// through one SQLite file. A lock that is stuck stays so.
pub(super) const PATIENCE: Duration = Duration::from_secs(50);
/// Leases of claims that wait here without a heartbeat.
const LONG: Duration = Duration::from_secs(60);
/// How soon a call that found the lock taken comes again, the first time and the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(128);
/// Servers and tests read clocks one after the other.
const EARLY: u64 = 20_000;

pub(super) struct Name {
    name: String,
    prefix: usize,
    scene: Scene,
    arrival: Arrival,
    /// Microseconds from the end of the lease to the call.
    offset: i64,
    /// Whether it is known exactly when the lease ends.
    exact: bool,
    /// The claim that asks at the edge, for arrivals that are in line already.
    claim: Arc<Claim>,
    /// Those that wait besides.
    others: Vec<Arc<Claim>>,
    /// The dead holder's fence.
    dead: AtomicU64,
    /// The last fence seen.
    fence: AtomicU64,
    /// When the holder's lease ends, in microseconds of the wall clock.
    until: AtomicU64,
    /// When the call was made in fact.
    made: AtomicI64,
}

impl Name {
    pub(super) fn new(
        prefix: &str,
        at: usize,
        scene: Scene,
        arrival: Arrival,
        offset: i64,
        exact: bool,
    ) -> Self {
        let name = format!("{prefix}{at}");
        let claimed = LockName::new(&name).expect("a name");
        let claim = || Arc::new(Claim::new(claimed.clone(), scene.mode(), LONG));
        Self {
            claim: claim(),
            others: (0..scene.live()).map(|_| claim()).collect(),
            name,
            prefix: prefix.len(),
            scene,
            arrival,
            offset,
            exact,
            dead: AtomicU64::new(0),
            fence: AtomicU64::new(0),
            until: AtomicU64::new(u64::MAX),
            made: AtomicI64::new(0),
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.name[..self.prefix]
    }

    /// Brings into line what must be there before; false if the holder has lost the lock already: a busy machine kept it
    /// from its renewals, and there is nothing to see at the end of its lease.
    pub(super) async fn prepare(&self, cast: &Cast) -> Result<bool> {
        let own = self.arrival.waits().then_some(&self.claim);
        for claim in self.others.iter().chain(own) {
            if !matches!(cast.session.claim(claim).await?, Standing::Waiting { .. }) {
                self.leave(cast).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes the fence of the holder and when its lease ends, as its line shows or else as its process said; tells when
    /// the call is due. A holder whose death is noticed has no lease any more. None if it had lost the lock before it died.
    pub(super) fn ends(&self, said: &str, lines: &[LineView], at_once: Option<u64>) -> Option<u64> {
        let said = said.split_once(':').expect("a fence and a time");
        let [fence, until] = [said.0, said.1].map(|n| n.parse().expect("a number"));
        let shown = lines.iter().find(|line| line.name == self.claim.name);
        let mut holders = shown.map_or(&[][..], |line| &line.holders).iter();
        let newer = |holder: &ClaimView| holder.fence.is_some_and(|newer| newer.get() > fence);
        if holders.clone().any(newer) {
            return None;
        }
        let shown = holders
            .next()
            .map(|first| holders.fold(first.until, |end, next| end.max(next.until)));
        let until = at_once.unwrap_or(shown.map_or(until, micros));
        self.dead.store(fence, Ordering::SeqCst);
        self.fence.store(fence, Ordering::SeqCst);
        self.until.store(until, Ordering::SeqCst);
        let first = at_once.map_or(0, |_| EARLY / 4);
        Some((until + first).saturating_add_signed(self.offset))
    }

    /// Leaves the line: there is nothing to see here.
    pub(super) async fn leave(&self, cast: &Cast) -> Result<()> {
        for claim in self.others.iter().chain([&self.claim]) {
            let _ = cast.session.release(claim, 1).await?;
        }
        Ok(())
    }

    /// Waits for the bell, makes the call, and sees the lock pass on.
    pub(super) async fn part(
        self: Arc<Self>,
        cast: Arc<Cast>,
        rings: oneshot::Receiver<()>,
    ) -> Result<(), String> {
        let _ = rings.await;
        let mut waiters = JoinSet::new();
        for claim in &self.others {
            let (this, cast, claim) = (self.clone(), cast.clone(), claim.clone());
            let _ = waiters.spawn(async move { this.keep_asking(&cast, &claim).await });
        }
        let went = tokio::time::timeout(PATIENCE, async {
            let arrived = self.arrive(&cast).await;
            while let Some(waited) = waiters.join_next().await {
                let waited = waited.map_err(|panic| format!("a waiter: {panic}"))?;
                waited.map_err(|error| format!("a waiter: {error}"))?;
            }
            arrived.map_err(|error| error.to_string())?;
            let last = self.lock(&cast.newcomer).await;
            last.map_err(|error| format!("the last: {error}"))
        });
        let wrong = match went.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => {
                let query = Query::name(self.claim.name.clone());
                format!("stuck: {:?}", cast.newcomer.inspect(&query).await)
            }
        };
        Err(format!("{self}: {wrong}"))
    }

    async fn arrive(&self, cast: &Cast) -> Result<()> {
        let late = i128::from(Clock::boot().wall()) - i128::from(self.until.load(Ordering::SeqCst));
        self.made
            .store(i64::try_from(late).unwrap_or(i64::MAX), Ordering::SeqCst);
        let dead = Fence::new(self.dead.load(Ordering::SeqCst));
        match self.arrival {
            Arrival::Claim => self.lock(&cast.newcomer).await,
            Arrival::Try => {
                let mut pause = FIRST_PAUSE;
                while !self
                    .scene
                    .try_lock(&cast.newcomer, &self.name, |fence| self.granted(fence))
                    .await?
                {
                    rest(&mut pause).await;
                }
                Ok(())
            }
            Arrival::Heartbeat => self.keep_asking(cast, &self.claim).await,
            Arrival::Release => cast.session.release(&self.claim, 1).await.map(|_| ()),
            Arrival::Evict => cast
                .newcomer
                .evict_fence(&self.name, dead, "at the edge")
                .await
                .map(|_| ()),
            Arrival::Look => {
                let query = Query::name(self.claim.name.clone());
                cast.newcomer.inspect(&query).await.map(|_| ())
            }
        }
    }

    async fn lock(&self, client: &leasehold::Client) -> Result<()> {
        self.scene
            .lock(client, &self.name, |fence| self.granted(fence))
            .await
    }

    /// Says that the waiting claim is alive until it holds, and gives it back.
    async fn keep_asking(&self, cast: &Cast, claim: &Arc<Claim>) -> Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            match beat(&*cast.session, claim).await? {
                Some(Standing::Held(held)) => {
                    self.granted(held.fence);
                    return cast.session.release(claim, 1).await.map(|_| ());
                }
                Some(Standing::Waiting { .. }) | None => {
                    rest(&mut pause).await;
                }
                other => panic!("{self}: a claim that waits is {other:?}"),
            }
        }
    }

    /// While it is held: the fence is larger than all before, and the lease of the dead holder is over.
    fn granted(&self, fence: Fence) {
        let (now, until) = (Clock::boot().wall(), self.until.load(Ordering::SeqCst));
        let last = self.fence.swap(fence.get(), Ordering::SeqCst);
        assert!(last < fence.get(), "{self}: fence {fence} after {last}");
        let early = self.exact && self.arrival != Arrival::Evict && now + EARLY < until;
        assert!(
            !early,
            "{self}: granted {} µs before the holder's end",
            until - now
        );
    }
}

/// Before the next ask, and longer each time: hundreds that go on asking every millisecond keep a server busy for longer
/// than it takes to pass all of their locks on.
async fn rest(pause: &mut Duration) {
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(LAST_PAUSE);
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).expect("a time")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.made.load(Ordering::SeqCst);
        write!(
            f,
            "{}, {:?} at {made} µs (wanted {})",
            self.name, self.arrival, self.offset
        )
    }
}
