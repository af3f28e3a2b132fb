//! Several names at once.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::task::Poll;
use std::time::Duration;

use super::run::{RunError, runs, under, was_lost};
use super::{Handle, terms};
use crate::claim::Mode;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::{Guard, Released};
use crate::turns::{Terms, Turns};

/// Several names at once, all or none; no names at all are refused. Names are taken in sorted order, so two of these never wait for each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let both = client.multi(["acct:2", "acct:1"]).lock().await?;
/// assert_eq!(both.guards().len(), 2);
/// assert!(client.mutex("acct:1").try_lock().await?.is_none());
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is asked for"]
pub struct Multi(Names);

/// The handles in sorted order, each name once.
#[derive(Debug, Clone)]
struct Names {
    mutexes: Vec<Handle>,
    terms: Terms,
}

impl Multi {
    pub(crate) fn new<S: AsRef<str>>(
        turns: &std::sync::Arc<Turns>,
        names: impl IntoIterator<Item = S>,
        terms: Terms,
    ) -> Self {
        let names: std::collections::BTreeSet<_> = names
            .into_iter()
            .map(|name| name.as_ref().to_owned())
            .collect();
        let mutexes = names
            .iter()
            .map(|name| Handle::new(turns, name, terms.clone()))
            .collect();
        Self(Names { mutexes, terms })
    }

    /// Says why it cannot be used when it is asked for.
    pub(super) fn refused(handle: &Handle) -> Self {
        let (mutexes, terms) = (vec![handle.clone()], handle.terms.clone());
        Self(Names { mutexes, terms })
    }

    terms!();

    /// Waits until all names are held.
    ///
    /// # Ordering
    /// Each name as [`Mutex::lock`](crate::Mutex::lock); in sorted order, whatever order they were given in.
    /// # Cancel safety
    /// Dropping the future gives back what it had.
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), and if a name taken earlier was lost while waiting for a later one; nothing stays held.
    /// # Not promised
    /// A name that waits for another is held meanwhile: others wait for it too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.multi(["a", "b"]).lock().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard>> + Send + '_ {
        let all = self.all(None, true, Location::caller());
        async {
            let all = all.await?;
            all.ok_or_else(|| {
                let what = "the engine answered busy to a request that waits: ask again";
                Error::new(ErrorKind::Unavailable, Step::Claim, what)
            })
        }
    }

    /// All names, if all are free now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.multi(["a", "b"]).try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<MultiGuard>>> + Send + '_ {
        self.all(None, false, Location::caller())
    }

    /// Like [`lock`](Self::lock), for at most this long for all of them together; then `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// assert!(client.multi(["a", "b"]).lock_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<MultiGuard>>> + Send + '_ {
        self.all(Some(patience), true, Location::caller())
    }

    runs!("client.multi([\"a\", \"b\"])": run, run_within, try_run = lock, lock_within, try_lock -> MultiGuard);

    /// All names, one after the other; `within` is the time for all of them together.
    async fn all(
        &self,
        within: Option<Duration>,
        waits: bool,
        place: &'static Location<'static>,
    ) -> Result<Option<MultiGuard>> {
        if self.0.mutexes.is_empty() {
            let what = "no names were given: a guard of nothing protects nothing";
            return Err(Error::new(ErrorKind::Invalid, Step::Name, what));
        }
        let mut late = within.map(|within| Box::pin(tokio::time::sleep(within)));
        let mut guards = Vec::with_capacity(self.0.mutexes.len());
        for handle in &self.0.mutexes {
            let mut handle = handle.clone();
            handle.terms = self.0.terms.clone();
            let taken = match &mut late {
                None => handle.take(Mode::Mutex, waits, place).await?,
                Some(late) => handle.until(Mode::Mutex, late.as_mut(), place).await?,
            };
            match taken {
                Some(guard) => guards.push(guard),
                None => {
                    // Given back before the answer, so that "busy" leaves nothing held.
                    let _ = MultiGuard { guards }.release().await?;
                    return Ok(None);
                }
            }
        }
        let guard = MultiGuard { guards };
        // A name taken early may have been lost while a later one was waited for.
        guard.check()?;
        Ok(Some(guard))
    }
}

/// Several held names. Dropping it releases all of them in the background.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once releases the locks at once"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards in the sorted order of their names, each with its own fence.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.multi(["b", "a"]).lock().await?;
    /// assert_eq!(guard.guards()[0].name().as_str(), "a");
    /// # Ok(()) }
    /// ```
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Fails if any of the names is lost.
    ///
    /// # Errors
    /// That of the first name that is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// client.multi(["a", "b"]).lock().await?.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Waits until any of the names is lost. Cancel-safe, as [`Guard::lost`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.multi(["a", "b"]).lock().await?;
    /// tokio::select! {
    ///     why = guard.lost() => eprintln!("stop: {why}"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Error {
        let mut all: Vec<_> = self
            .guards
            .iter()
            .map(|guard| Box::pin(guard.lost()))
            .collect();
        poll_fn(move |cx| {
            let mut lost = all.iter_mut().map(|lost| lost.as_mut().poll(cx));
            lost.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Gives all names back, side by side. [`Released::WasLost`] if any had been lost.
    ///
    /// # Ordering
    /// None among the names: an answer that is late does not keep the others held.
    /// # Cancel safety
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    /// # Errors
    /// That of the first name that has one; the other names are given back all the same.
    /// # Not promised
    /// That all are free at one moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// client.multi(["a", "b"]).lock().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Released> {
        let releases = self.guards.into_iter().map(Guard::release);
        let answers: Result<Vec<_>> = side_by_side(releases).await.into_iter().collect();
        let lost = answers?.contains(&Released::WasLost);
        Ok(if lost {
            Released::WasLost
        } else {
            Released::Released
        })
    }
}

/// The outputs of all futures, in their order, once the last one has ended.
async fn side_by_side<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut open: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in open.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        match open.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    open.into_iter().filter_map(|(_, output)| output).collect()
}
