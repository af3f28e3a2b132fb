#![doc = include_str!("docs.md")]

mod alive;
mod dir;
mod error;
mod floor;
mod leftovers;
mod life;
mod lines;
mod look;
mod name;
mod page;
mod push;
mod record;
mod session;
mod store;
mod tidy;
mod trace;
mod view;
mod work;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::error::Trouble;
use self::lines::{Lines, Place, Tried};
use self::session::FileSession;
use self::world::{Done, PATIENCE, World};
use crate::engine::{
    Clock, Ended, Engine, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url,
    Verdict, cannot_ask,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::line::{Change, What};
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
        "" => File::at(dir::default_path(), Clock::boot()),
        path => File::at(path, Clock::boot()),
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
    /// use leasehold::{Options, engine::{Clock, File}};
    /// # let temp = tempfile::tempdir().unwrap(); let dir = temp.path();
    /// let engine = std::sync::Arc::new(File::at(dir, Clock::boot())?);
    /// let client = Options::new().open(engine).await?;
    /// let guard = client.mutex("x").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn at(dir: impl AsRef<Path>, clock: Clock) -> Result<Self> {
        let world = World::open(dir.as_ref(), clock);
        let world = Arc::new(world.map_err(|trouble| trouble.at(Step::Connect))?);
        Ok(Self { world })
    }

    /// Takes a lock away, if its file is free to be worked on.
    fn try_evict(&self, name: &Name, fence: Option<Fence>) -> Result<Tried<Taken>, Trouble> {
        let place = Place::existing(&self.world.dir, name);
        Lines::default().with(&mut None, &place, |mut locked| {
            self.world.work(&mut locked, None, |line, at| {
                let mut changes = line.sweep(at);
                let held: Vec<_> = line.holders().cloned().collect();
                changes.extend(line.evict(fence, at));
                let evicted = |place: &&crate::line::Place| {
                    let is_it =
                        |change: &Change| change.claim == place.id && change.what == What::Evicted;
                    changes.iter().any(is_it)
                };
                let fences = held.iter().filter(evicted).filter_map(|place| place.fence);
                (fences.map(Fence::get).collect(), changes)
            })
        })
    }
}

/// The fences of those who lost a lock.
type Taken = Done<Vec<u64>>;

#[async_trait]
impl Engine for File {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn location(&self) -> String {
        format!("file:{}", self.world.dir.root.display())
    }

    fn guarantees(&self) -> Guarantees {
        use Verdict::{Absent, Fenced, Kept};
        Guarantees::new(
            "file",
            Level::L2,
            [Kept, Fenced, Kept, Kept, Absent, Absent],
        )
        .scope("every process of this machine that uses this directory")
        .dead_holder("at once")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let dir = &self.world.dir;
        dir.prepare().map_err(|trouble| trouble.at(Step::Open))?;
        leftovers::clear(&self.world);
        let session = FileSession::open(self.world.clone(), who.clone(), inbox)?;
        Ok(session)
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let views = view::views(&self.world, query.name.as_ref());
        views.map_err(|trouble| trouble.at(Step::Inspect))
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let at_evict = |trouble: Trouble| trouble.at(Step::Evict).of(name);
        let give_up = self.world.clock.now().saturating_add(PATIENCE);
        let taken = loop {
            match self.try_evict(name, fence).map_err(at_evict)? {
                Tried::Done(taken) => break taken,
                Tried::Absent => return Ok(0),
                Tried::Busy if self.world.clock.now() >= give_up => {
                    return Err(self.world.busy(Step::Evict, name));
                }
                Tried::Busy => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let ended = Ended::Evicted {
            by: by.to_string(),
            why: why.to_owned(),
        };
        self.world.tell(&taken.changes, Some(&ended));
        let fences = taken.answer;
        if !fences.is_empty() {
            tracing::warn!(%name, %by, why, "evicted");
            let wall = self.world.clock.wall();
            trace::leave(&self.world.dir, wall, name, &fences, by, why)
                .map_err(|trouble| at_evict(trouble).perhaps())?;
        }
        Ok(u32::try_from(fences.len()).unwrap_or(u32::MAX))
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
