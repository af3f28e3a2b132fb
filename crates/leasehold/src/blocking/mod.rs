//! The same API without async: every call blocks the thread.
//!
//! A re-entrant lock belongs to the thread that took it. A client has one background thread, which renews what is
//! held; it ends by itself when the last clone and the last guard are gone.
//!
//! ```
//! let client = leasehold::blocking::connect("memory:")?;
//! let guard = client.mutex("stock:42").lock()?;
//! println!("writing with fence {}", guard.fence());
//! guard.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

mod background;
#[cfg(feature = "cached")]
mod cached;
mod evict;
mod guard;
mod higher;
mod kinds;
mod meeting;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub(crate) use self::background::Background;
#[cfg(feature = "cached")]
pub use self::cached::Cached;
pub use self::guard::{Guard, MultiGuard, WriteGuard};
pub use self::higher::{Election, Leaders, Leadership, Once, Stock};
pub use self::kinds::{Multi, Mutex, RwLock, Semaphore, Striped};
pub use self::meeting::{Barrier, Latch};
use crate::client::ShutdownReport;
use crate::engine::{Guarantees, LineView, Query};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::options::ConnectOptions;

/// Connects to the engine of a URL, as [`leasehold::connect`](crate::connect).
///
/// # Errors
/// As [`leasehold::connect`](crate::connect), and [`ErrorKind::Invalid`] inside an async task: there the async API belongs,
/// or `spawn_blocking`.
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn connect(url: &str) -> Result<Client> {
    connect_with(url, ConnectOptions::new())
}

/// Like [`connect`], with options.
///
/// # Errors
/// As [`connect`].
///
/// ```
/// let options = leasehold::ConnectOptions::new().require(leasehold::Level::L2);
/// let client = leasehold::blocking::connect_with("memory:", options)?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn connect_with(url: &str, options: ConnectOptions) -> Result<Client> {
    Background::refuse_inside_runtime()?;
    let (url, (tell, told)) = (url.to_owned(), std::sync::mpsc::channel());
    let (gone, until_gone) = oneshot::channel();
    let thread = std::thread::Builder::new().name("leasehold".to_owned());
    let started = thread.spawn(move || background(&url, options, tell, until_gone));
    let failed = |why: &str| Error::new(ErrorKind::Unavailable, Step::Connect, why);
    if let Err(error) = started {
        return Err(failed("the background thread did not start").because(error));
    }
    let connected = told.recv();
    let (client, handle) = connected.map_err(|_| failed("the background thread ended"))??;
    let background = Arc::new(Background {
        handle,
        _gone: gone,
    });
    Ok(Client { client, background })
}

type Connected = Result<(crate::Client, Handle)>;

/// The background thread: connects, keeps claims alive, and releases the rest after the last client and guard are gone.
fn background(
    url: &str,
    options: ConnectOptions,
    tell: std::sync::mpsc::Sender<Connected>,
    until_gone: oneshot::Receiver<()>,
) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failed = Error::new(
                ErrorKind::Unavailable,
                Step::Connect,
                "no runtime could be made",
            );
            let _ = tell.send(Err(failed.because(error)));
            return;
        }
    };
    runtime.block_on(async {
        let client = match options.connect(url).await {
            Ok(client) => client,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        let _ = tell.send(Ok((client.clone(), Handle::current())));
        // The sender never sends: the wait ends when the last client and guard are gone.
        let _ = until_gone.await;
        if let Err(error) = client.shutdown(Duration::from_secs(5)).await {
            tracing::debug!(%error, "the background thread ends");
        }
    });
}

/// A client of one engine, for threads. Cheap to clone.
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let guard = client.rwlock("config").read()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    client: crate::Client,
    background: Arc<Background>,
}

impl Client {
    /// Connects as the environment says; see [`leasehold::Client::from_env`](crate::Client::from_env).
    ///
    /// # Errors
    /// As [`connect`].
    ///
    /// ```no_run
    /// let client = leasehold::blocking::Client::from_env()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_env() -> Result<Self> {
        connect("")
    }

    /// A lock with one holder at a time; see [`leasehold::Client::mutex`](crate::Client::mutex).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.mutex("x").lock()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.client.mutex(name), &self.background)
    }

    /// A lock with many readers or one writer; see [`leasehold::Client::rwlock`](crate::Client::rwlock).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.rwlock("x").write()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.client.rwlock(name), &self.background)
    }

    /// A lock with a few holders at a time; see [`leasehold::Client::semaphore`](crate::Client::semaphore).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let permit = client.semaphore("x", 4).acquire()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.client.semaphore(name, permits), &self.background)
    }

    /// Several names at once, all or none; see [`leasehold::Client::multi`](crate::Client::multi).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.multi(["a", "b"]).lock()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Multi {
        Multi::new(self.client.multi(names), &self.background)
    }

    /// Many locks where one was too hot; see [`leasehold::Client::striped`](crate::Client::striped).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.striped("carts", 16).for_key("user:7").lock()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn striped(&self, name: impl AsRef<str>, stripes: u32) -> Striped {
        Striped::new(self.client.striped(name, stripes), &self.background)
    }

    /// A number in segments; see [`leasehold::Client::stock`](crate::Client::stock).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// assert!(!client.stock("sold-out", 4).take(1)?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn stock(&self, name: impl AsRef<str>, segments: u32) -> Stock {
        Stock::new(self.client.stock(name, segments), &self.background)
    }

    /// One leader at a time; see [`leasehold::Client::election`](crate::Client::election).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let leadership = client.election("scheduler").campaign()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.client.election(name), &self.background)
    }

    /// Work that is done once per key; see [`leasehold::Client::once`](crate::Client::once).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let once = client.once("mail:7", std::time::Duration::from_secs(86_400));
    /// once.run(|_| Ok::<_, leasehold::Error>("sent"))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn once(&self, key: impl AsRef<str>, keep: Duration) -> Once {
        Once::new(self.client.once(key, keep), &self.background)
    }

    /// A count that opens for all who wait; see [`leasehold::Client::latch`](crate::Client::latch).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// client.latch("ready", 1).count_down()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch::new(self.client.latch(name, count), &self.background)
    }

    /// So many arrive, and all go; see [`leasehold::Client::barrier`](crate::Client::barrier).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// assert!(client.barrier("alone", 1).arrive()?.last);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn barrier(&self, name: impl AsRef<str>, count: u32) -> Barrier {
        Barrier::new(self.client.barrier(name, count), &self.background)
    }

    /// A value that one process of the fleet loads; see [`leasehold::Client::cached`](crate::Client::cached).
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let answer = client.cached("answer").get_or_load(|| Ok::<_, leasehold::Error>(Some(42)))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[cfg(feature = "cached")]
    pub fn cached<T: Send + Sync + 'static>(&self, name: impl AsRef<str>) -> Cached<T> {
        Cached::new(self.client.cached(name), &self.background)
    }

    /// The verdict per fault, and what the engine can do.
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// println!("{}", client.guarantees().level);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn guarantees(&self) -> Guarantees {
        self.client.guarantees()
    }

    /// The holders and the waiters, as they are now.
    ///
    /// # Errors
    /// If the engine cannot be read.
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// assert!(client.inspect(&leasehold::Query::all())?.is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        self.background.block_on(self.client.inspect(query))
    }

    /// Refuses new claims and waits until every guard is released; see
    /// [`leasehold::Client::shutdown`](crate::Client::shutdown).
    ///
    /// # Errors
    /// If the engine could not be told that the session ends.
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// assert_eq!(client.shutdown(std::time::Duration::from_secs(1))?.abandoned, 0);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn shutdown(&self, patience: Duration) -> Result<ShutdownReport> {
        self.background.block_on(self.client.shutdown(patience))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
