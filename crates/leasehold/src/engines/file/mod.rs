#![doc = include_str!("docs.md")]

mod cleanup;
mod dir;
mod error;
mod evict;
mod home;
mod inspect;
mod names;
mod notify;
mod presence;
mod record;
mod session;
mod slots;
mod store;
mod transaction;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

#[cfg(fuzzing)]
pub(crate) use self::record::tests as fuzzed;
use self::session::FileSession;
use self::transaction::World;
use crate::engine::{
    Clock, Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url,
    Verdict, cannot_ask, path_in_url,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Lines in a directory of this machine.
#[derive(Debug, Clone)]
pub struct File {
    world: Arc<World>,
}

/// The engine of a `file:` URL. `file:` alone is this user's own directory.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    url.params().finish()?;
    if !url.hosts().is_empty() {
        let what = "a directory has no host: write file:DIR or file:///DIR";
        return Err(Error::new(ErrorKind::Config, Step::Connect, what).on("file"));
    }
    let file = match url.path() {
        "" => File::new(
            home::default_path().map_err(|trouble| trouble.at(Step::Connect))?,
            Clock::boot(),
        ),
        path => File::new(path, Clock::boot()),
    };
    Ok(Arc::new(file?))
}

impl File {
    /// The lines in a directory, on this clock. The directory is made if it is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] for a directory that is not this user's alone, [`ErrorKind::Unsupported`] for one on a
    /// network file system.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{ConnectOptions, engine::{Clock, File}};
    /// # let temp = tempfile::tempdir().unwrap(); let dir = temp.path();
    /// let engine = std::sync::Arc::new(File::new(dir, Clock::boot())?);
    /// let client = ConnectOptions::new().open(engine).await?;
    /// let guard = client.mutex("x").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(dir: impl AsRef<Path>, clock: Clock) -> Result<Self> {
        let world = World::open(dir.as_ref(), clock);
        let world = Arc::new(world.map_err(|trouble| trouble.at(Step::Connect))?);
        Ok(Self { world })
    }
}

#[async_trait]
impl Engine for File {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn location(&self) -> String {
        format!("file:{}", path_in_url(&self.world.dir.root))
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Absent, Fenced, Kept};
        Guarantees::new("file", Level::L2)
            .verdict(Kept, [HolderCrash, ClockStep, ServerCrash])
            .verdict(Fenced, [Pause])
            .verdict(Absent, [Failover, Partition])
            .scope("the processes of one user on this machine that use this directory")
            .dead_holder("at once")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let dir = &self.world.dir;
        dir.prepare().map_err(|trouble| trouble.at(Step::Open))?;
        cleanup::clear_leftovers(&self.world);
        let session = FileSession::open(self.world.clone(), who.clone(), inbox)?;
        Ok(session)
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let views = inspect::views(&self.world, query.name.as_ref());
        views.map_err(|trouble| trouble.at(Step::Inspect))
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        self.world.evict(name, fence, by, why).await
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
