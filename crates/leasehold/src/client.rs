//! The way in: a client of one engine.

mod higher;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Guarantees, Identity, LineView, Query, url_engine};
use crate::error::Result;
use crate::fence::Fence;
#[cfg(feature = "cached")]
use crate::kinds::Layer;
use crate::kinds::{Handle, Multi, Mutex, RwLock, Semaphore, Striped};
use crate::name::Name;
use crate::options::ConnectOptions;
use crate::store::Store;
use crate::turns::{Terms, Turns};

/// Connects to the engine of a URL: `memory:`, `file:DIR`, … An empty string means `LEASEHOLD_URL`, and without
/// that the default: `file:` in this user's own directory.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that no engine of this build understands; otherwise those
/// of the engine.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("stock:42").lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    ConnectOptions::new().connect(url).await
}

/// The guarantees of a URL's engine, without reaching it.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that no engine of this build understands.
///
/// ```
/// use leasehold::engine::{Fault, Verdict};
/// let memory = leasehold::guarantees("memory:")?;
/// assert_eq!(memory.under(Fault::HolderCrash), Verdict::Kept);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn guarantees(url: &str) -> Result<Guarantees> {
    Ok(url_engine(url)?.1.guarantees())
}

/// A client of one engine. Cheap to clone; all clones share one session.
///
/// Its background tasks live on the runtime that connected it: when that runtime ends, what is held is lost and new claims
/// are refused ([`ErrorKind::Closed`](crate::ErrorKind::Closed)). Calls may come from other runtimes, which may end before
/// their guards do. When the last clone and the last guard are gone, what
/// was dropped is given back and the session is closed, in the background; [`shutdown`](Self::shutdown) waits for it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let again = client.clone();
/// let _guard = client.mutex("x").lock().await?;
/// assert!(again.mutex("x").try_lock().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    turns: Arc<Turns>,
    engine: Arc<dyn Engine>,
    who: Identity,
    terms: Terms,
    store: Option<Arc<dyn Store>>,
    #[cfg(feature = "cached")]
    layer: Arc<Layer>,
}

/// How a shutdown ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Claims that were not given back in time. They are lost to their guards, and end in the engine with the
    /// session or with their lease.
    pub abandoned: usize,
}

impl Client {
    pub(crate) fn new(
        turns: Arc<Turns>,
        engine: Arc<dyn Engine>,
        who: Identity,
        terms: Terms,
        store: Option<Arc<dyn Store>>,
        #[cfg(feature = "cached")] layer: Layer,
    ) -> Self {
        Self(Arc::new(Inner {
            turns,
            engine,
            who,
            terms,
            store,
            #[cfg(feature = "cached")]
            layer: Arc::new(layer),
        }))
    }

    /// Connects to the engine of `LEASEHOLD_URL`, and without that to `file:` in this user's own directory.
    ///
    /// # Ordering
    /// Not defined between calls.
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but a session that ends by itself.
    /// # Errors
    /// As [`connect`].
    /// # Not promised
    /// That two users of one machine exclude each other without the variable: each has a directory of its own.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::Client::from_env().await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_env() -> Result<Self> {
        connect("").await
    }

    /// A lock with one holder at a time. A bad name is reported when the lock is asked for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("stock:42").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.handle(name.as_ref()))
    }

    /// A lock with many readers or one writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.rwlock("config").read().await?;
    /// # Ok(()) }
    /// ```
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.handle(name.as_ref()))
    }

    /// A lock with a few holders at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let permit = client.semaphore("gpu", 4).acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.handle(name.as_ref()), permits)
    }

    /// Several names at once, all or none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.multi(["acct:1", "acct:2"]).lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Multi {
        Multi::new(&self.0.turns, names, self.0.terms.clone())
    }

    /// Many locks where one was too hot: a key has its stripe, out of so many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.striped("carts", 16).for_key("user:7").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn striped(&self, name: impl AsRef<str>, stripes: u32) -> Striped {
        Striped::new(&self.0.turns, name.as_ref(), stripes, self.0.terms.clone())
    }

    /// The verdict per fault, and what the engine can do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// println!("{}", client.guarantees().level);
    /// # Ok(()) }
    /// ```
    pub fn guarantees(&self) -> Guarantees {
        self.0.engine.guarantees()
    }

    /// Where the engine is, as a URL without secrets.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.location().starts_with("memory:"));
    /// # Ok(()) }
    /// ```
    pub fn location(&self) -> String {
        self.0.engine.location()
    }

    /// The holders and the waiters, as they are now. Changes nothing.
    ///
    /// # Errors
    /// If the engine cannot be read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use leasehold::Query;
    /// let guard = client.mutex("x").lock().await?;
    /// let lines = client.inspect(&Query::all()).await?;
    /// assert_eq!(lines[0].holders[0].fence, Some(guard.fence()));
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        self.0.engine.inspect(query).await
    }

    /// Takes a lock away from all its holders; says how many lost it. They are told, later fences are larger, and a trace
    /// of the eviction is left. For a moment the old holder and the next one both run: the old one stops when it looks.
    ///
    /// # Errors
    /// If the engine cannot do it, or the name is not one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// assert_eq!(client.evict("x", "the job hangs").await?, 1);
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    pub async fn evict(&self, name: impl AsRef<str>, why: &str) -> Result<u32> {
        let name = Name::new(name)?;
        self.0.engine.evict(&name, None, &self.0.who, why).await
    }

    /// Like [`evict`](Self::evict), the holder of one fence alone: a later holder keeps the lock.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// assert_eq!(client.evict_fence("x", guard.fence(), "the job hangs").await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn evict_fence(&self, name: impl AsRef<str>, fence: Fence, why: &str) -> Result<u32> {
        let (name, fence) = (Name::new(name)?, Some(fence));
        self.0.engine.evict(&name, fence, &self.0.who, why).await
    }

    /// Asks all holders of a lock to give it up; says how many were asked. It stays theirs until they do: their
    /// [`Guard::release_requested`](crate::Guard::release_requested) tells them. Curator's holders hear it too.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where holders cannot be told (all but ZooKeeper, etcd,
    /// Consul and memory), or if the engine cannot be reached.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// assert_eq!(client.ask_to_release("x").await?, 1);
    /// assert!(guard.is_release_requested());
    /// # Ok(()) }
    /// ```
    pub async fn ask_to_release(&self, name: impl AsRef<str>) -> Result<u32> {
        let name = Name::new(name)?;
        self.0.engine.ask_to_release(&name, None).await
    }

    /// Like [`ask_to_release`](Self::ask_to_release), the holder of one fence alone.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// assert_eq!(client.ask_fence_to_release("x", guard.fence()).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn ask_fence_to_release(&self, name: impl AsRef<str>, fence: Fence) -> Result<u32> {
        let name = Name::new(name)?;
        self.0.engine.ask_to_release(&name, Some(fence)).await
    }

    /// Refuses new claims and turns, gives back what lingers, and waits until every guard is released, at most this long.
    /// Then closes the session: guards that are left are lost. A server that does not answer makes it half a second
    /// longer, not more.
    ///
    /// # Ordering
    /// Tasks that wait for a lock are told first ([`ErrorKind::Closed`](crate::ErrorKind::Closed)), and every holder is asked to finish
    /// ([`Guard::release_requested`](crate::Guard::release_requested)); then what is held may finish. A re-entrant lock that is held can still be
    /// re-entered.
    /// # Cancel safety
    /// Dropping the future leaves the client refusing new claims; call it again to go on waiting.
    /// # Errors
    /// If the engine could not be told that the session ends: its claims then end with their lease.
    /// # Not promised
    /// Abandoned claims end in the engine no later than their lease, on some engines at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use std::time::Duration;
    /// drop(client.mutex("x").lock().await?);
    /// assert_eq!(client.shutdown(Duration::from_secs(5)).await?.abandoned, 0);
    /// assert!(client.mutex("x").lock().await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self, patience: Duration) -> Result<ShutdownReport> {
        let manager = self.0.turns.manager();
        manager.close();
        self.0.turns.close();
        let abandoned = manager.drain(patience).await?;
        Ok(ShutdownReport { abandoned })
    }

    fn handle(&self, name: &str) -> Handle {
        Handle::new(&self.0.turns, name, self.0.terms.clone())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.location())
    }
}
