//! So many arrive, and all go.

mod record;

use std::fmt;
use std::time::Duration;

use self::record::Record;
use super::looks::Looks;
use super::{Mutex, Semaphore};
use crate::client::Client;
use crate::engine::Query;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::Guard;
use crate::name::Name;
use crate::store::{self, Entry};

/// A barrier: so many arrive, from anywhere in the fleet, and then all go; and again. A member that dies or gives up before all
/// have arrived breaks it for those who are there: they are told so ([`ErrorKind::Broken`]), and may arrive anew.
///
/// Each member holds a permit of the semaphore `barrier:NAME#members`: its lease is the member's sign of life. Who has arrived is in
/// the client's [store](crate::store), changed under the lock `barrier:NAME`. An engine without permits refuses it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let step = client.barrier("step", 2);
/// let (one, two) = tokio::join!(step.arrive(), step.arrive());
/// let (one, two) = (one?, two?);
/// assert_eq!(one.generation, two.generation);
/// assert_ne!(one.last, two.last); // exactly one of them came last
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a barrier does nothing until a member arrives"]
pub struct Barrier {
    client: Client,
    name: String,
    members: Semaphore,
    lock: Mutex,
    count: u32,
    lease: Duration,
}

/// All have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passed {
    /// The same for all who went together, and larger for those who go later.
    pub generation: u64,
    /// Whether this member came last: true for one of them.
    pub last: bool,
}

/// How long the store keeps the record while no member waits, and while one does.
const IDLE: Duration = Duration::from_secs(86_400);
const WAITING: Duration = Duration::from_secs(30 * 86_400);

impl Barrier {
    pub(crate) fn new(client: Client, name: &str, count: u32, lease: Duration) -> Self {
        let name = format!("barrier:{name}");
        let members = client.guarding(&format!("{name}#members"));
        let members = Semaphore::new(members, count);
        let lock = Mutex::new(client.guarding(&name));
        Self {
            client,
            name,
            members,
            lock,
            count,
            lease,
        }
    }

    /// How long a member that cannot be heard counts as alive.
    pub fn lease(self, lease: Duration) -> Self {
        let members = self.members.lease(lease);
        let lock = self.lock.lease(lease);
        Self {
            members,
            lock,
            lease,
            ..self
        }
    }

    /// Arrives, and waits until all have arrived. It looks at the store, at most every 250 ms.
    ///
    /// # Ordering
    /// What each member did before it arrived is done when any of them goes. More members than fit wait for the next generation, first
    /// come, first served.
    /// # Cancel safety
    /// Dropping the future gives up the place: the barrier breaks for those who have arrived. A member that arrives before the
    /// release is through may still go with this one.
    /// # Errors
    /// [`ErrorKind::Broken`] if a member died or gave up: told within about a lease of a death, and within about a second of a release. [`ErrorKind::Lost`] if
    /// this member's permit was lost; [`ErrorKind::Conflict`] if the barrier was made for another number; otherwise those of
    /// the locks and of the store.
    /// # Not promised
    /// That a barrier breaks while its members live and one is only slow: give it a time ([`arrive_within`](Self::arrive_within)). A
    /// member that dies just after it was the last to arrive has arrived.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let alone = client.barrier("alone", 1).arrive().await?;
    /// assert!(alone.last);
    /// # Ok(()) }
    /// ```
    pub async fn arrive(&self) -> Result<Passed> {
        let _ = self.client.store()?;
        self.arrive_with(&mut None).await
    }

    /// Arrives; the permit is there for as long as the member is.
    async fn arrive_with(&self, permit: &mut Option<Guard>) -> Result<Passed> {
        let held = permit.insert(self.members.acquire().await?);
        let passed = tokio::select! {
            biased;
            lost = held.lost() => return Err(lost),
            passed = self.pass(held) => passed?,
        };
        // All have arrived: a permit that ends now takes nothing back.
        if let Some(permit) = permit.take() {
            let _ = permit.release().await;
        }
        Ok(passed)
    }

    /// Like [`arrive`](Self::arrive), for at most this long; then `None`, and the barrier breaks for those who have arrived.
    ///
    /// # Ordering
    /// As [`arrive`](Self::arrive).
    /// # Cancel safety
    /// As [`arrive`](Self::arrive). Running out of time takes the round trip of a release longer, so that no member goes with
    /// this one afterwards.
    /// # Errors
    /// As [`arrive`](Self::arrive).
    /// # Not promised
    /// `None` may come at the moment when all have arrived: the others went.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use std::time::Duration;
    /// let two = client.barrier("two", 2);
    /// assert!(two.arrive_within(Duration::from_millis(20)).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn arrive_within(&self, patience: Duration) -> Result<Option<Passed>> {
        let _ = self.client.store()?;
        let mut permit = None;
        if let Ok(passed) = tokio::time::timeout(patience, self.arrive_with(&mut permit)).await {
            return passed.map(Some);
        }
        // Given back before this is told: no member that arrives after that goes with this one.
        if let Some(permit) = permit {
            let _ = permit.release().await?;
        }
        Ok(None)
    }

    async fn pass(&self, permit: &Guard) -> Result<Passed> {
        let joined = self.join(permit).await?;
        if !joined.last {
            self.wait(joined.generation).await?;
        }
        Ok(joined)
    }

    /// Joins the open generation, and ends it if this member is the last.
    async fn join(&self, permit: &Guard) -> Result<Passed> {
        let guard = self.lock.lock().await?;
        let mut record = self.show(&guard).await?;
        // A generation whose members are gone would go without them.
        if self.misses(&record).await? {
            record.next(guard.fence());
        }
        let generation = record.open;
        record.fences.push(permit.fence().get());
        let last = record.fences.len() >= self.count as usize;
        if last {
            record.went = generation;
            record.next(guard.fence());
        }
        self.write(&guard, &record).await?;
        let _ = guard.release().await;
        Ok(Passed { generation, last })
    }

    /// Waits for the end of a generation.
    async fn wait(&self, generation: u64) -> Result<()> {
        let (name, store) = (Name::new(&self.name)?, self.client.store()?);
        let (mut looks, mut unwatched) = (Looks::new(), Duration::ZERO);
        let watch = (self.lease / 4).min(Duration::from_secs(1));
        loop {
            unwatched += looks.pause().await;
            let Some(entry) = looks.bear(store.get(&name).await)? else {
                continue;
            };
            let record = match entry {
                Some(entry) => self.read(&entry)?,
                None => return Err(self.broken()),
            };
            match record {
                Record { open, .. } if open == generation => {}
                Record { went, .. } if went == generation => return Ok(()),
                _ => return Err(self.broken()),
            }
            if unwatched < watch {
                continue;
            }
            unwatched = Duration::ZERO;
            let missed = looks.bear(self.misses(&record).await)?;
            if missed == Some(true) {
                let _ = looks.bear(self.break_up(generation).await)?;
            }
        }
    }

    /// Ends a generation that one of its members has left.
    async fn break_up(&self, generation: u64) -> Result<()> {
        let guard = self.lock.lock().await?;
        let mut record = self.show(&guard).await?;
        if record.open == generation && self.misses(&record).await? {
            record.next(guard.fence());
            self.write(&guard, &record).await?;
        }
        guard.release().await.map(drop)
    }

    /// Whether one who has joined holds its permit no longer. Two looks, because an engine of several servers may show what is a
    /// moment old.
    async fn misses(&self, record: &Record) -> Result<bool> {
        let query = Query::name(Name::new(format!("{}#members", self.name))?);
        for look in 0..2 {
            if record.fences.is_empty() {
                return Ok(false);
            }
            if look > 0 {
                let _ = Looks::new().pause().await;
            }
            let lines = self.client.inspect(&query).await?;
            let holders = lines.iter().flat_map(|line| &line.holders);
            let held: Vec<_> = holders.filter_map(|holder| holder.fence).collect();
            let there = |fence: &u64| held.iter().any(|held| held.get() == *fence);
            if record.fences.iter().all(there) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn show(&self, guard: &Guard) -> Result<Record> {
        let store = self.client.store()?;
        let shown = store.show(guard.name(), guard.fence());
        let shown = shown
            .await?
            .map_err(|stale| store::lost(stale, guard.name()))?;
        match shown {
            Some(entry) => self.read(&entry),
            None => Ok(Record::first(self.count, guard.fence())),
        }
    }

    async fn write(&self, guard: &Guard, record: &Record) -> Result<()> {
        let keep = if record.fences.is_empty() {
            IDLE
        } else {
            WAITING
        };
        let (store, text) = (self.client.store()?, record.to_string());
        store::put(&*store, guard, Some(text.as_bytes()), Some(keep)).await
    }

    fn read(&self, entry: &Entry) -> Result<Record> {
        let what = match std::str::from_utf8(&entry.value)
            .ok()
            .and_then(Record::parse)
        {
            Some(record) if record.count == self.count => return Ok(record),
            Some(Record { count, .. }) => {
                let mine = self.count;
                format!("the barrier is one of {count}, and this handle of {mine}: use one number")
            }
            None => "the store holds something else than a barrier under this name".to_owned(),
        };
        Err(Error::new(ErrorKind::Conflict, Step::Store, what).of(&Name::new(&self.name)?))
    }

    fn broken(&self) -> Error {
        let what = "a member died or gave up before all had arrived: let all arrive anew";
        let error = Error::new(ErrorKind::Broken, Step::Wait, what);
        match Name::new(&self.name) {
            Ok(name) => error.of(&name),
            Err(_) => error,
        }
    }
}

/// Whether a record is read, as it is written.
#[cfg(any(test, fuzzing))]
pub(super) fn is_read(text: &str) -> bool {
    let Some(mut record) = Record::parse(text) else {
        return false;
    };
    assert_eq!(Record::parse(&record.to_string()).as_ref(), Some(&record));
    record.next(crate::fence::Fence::new(u64::MAX));
    true
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier({:?}, {})", self.name, self.count)
    }
}
