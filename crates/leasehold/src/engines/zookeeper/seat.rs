//! A claim's node among those of a mutex or a read/write lock.

use std::sync::Arc;

use super::ground::Ground;
use super::link::{Link, failed};
use super::node::{Kind, LEASES, LOCKS, contenders, marker, prefix};
use super::note::Note;
use super::rule::{Verdict, verdict, was_semaphore};
use super::taking::take_place;
use super::wire::{Facts, Trouble, Watch};
use crate::claim::{Claim, ClaimId};
use crate::engine::{Mode, RW_CAPACITY};
use crate::error::{Error, ErrorKind, Step};
use crate::line::Refusal;
use crate::name::Name;

/// Where a claim stands, and what to wait for.
pub(super) enum Stand {
    Held {
        wanted: bool,
    },
    Wait {
        ahead: u32,
        watch: Watch,
        /// Whether the deletion of what is watched means that the claim holds.
        next: bool,
    },
    Gone,
}

/// Why a claim has no place.
pub(super) enum Fail {
    Refused(Error),
    /// The session is over.
    Dead(String),
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Dead(why) => Self::Dead(why),
            trouble => Self::Refused(failed(&trouble, Step::Claim)),
        }
    }
}

/// From here on the next sequences may overflow, and order is no longer order.
const SEQUENCE_END: i64 = (1 << 31) - (1 << 16);

pub(super) struct Seat {
    pub(super) link: Arc<Link>,
    name: Name,
    id: ClaimId,
    mode: Mode,
    pub(super) note: Note,
    own: Option<(String, Facts)>,
    /// The name's node.
    ground: Ground,
    /// Fires when the line changes, if it was armed.
    pub(super) behind: Option<Watch>,
}

impl Seat {
    pub(super) fn new(link: Arc<Link>, ground: Ground, claim: &Claim, note: Note) -> Self {
        Self {
            link,
            name: claim.name.clone(),
            id: claim.id,
            mode: claim.mode,
            note,
            own: None,
            ground,
            behind: None,
        }
    }

    /// The number its fences come from.
    pub(super) fn czxid(&self) -> i64 {
        match (self.note.czxid, &self.own) {
            (0, Some((_, facts))) => facts.czxid,
            (czxid, _) => czxid,
        }
    }

    /// The path of the name's node.
    fn base(&self) -> &str {
        &self.ground.base
    }

    /// The path of its own node.
    pub(super) fn path(&self) -> Option<String> {
        let (name, _) = self.own.as_ref()?;
        Some([self.base(), "/", name].concat())
    }

    /// Joins the line: one round trip where nobody is before it, and one request where nobody came since the last one.
    pub(super) async fn join(&mut self) -> Result<Stand, Fail> {
        let (prefix, with) = (prefix(self.id, marker(self.mode)), self.ground.with());
        let taken = take_place(&self.link, self.base(), &prefix, &self.note, with).await?;
        let sequence = taken.own.0.strip_prefix(&*prefix).map(str::parse);
        self.own = Some(taken.own);
        let Some(sequence) = sequence
            .and_then(Result::ok)
            .filter(|sequence| !is_full(*sequence))
        else {
            return Err(Fail::Refused(overflow(self.base())));
        };
        if let Some(watch) = taken.parent {
            self.ground.watch(watch);
        }
        let children = match taken.listed {
            Some((children, behind)) => {
                self.behind = behind;
                children
            }
            None if self.ground.proves(sequence) => return Ok(Stand::Held { wanted: false }),
            None => match self.list_watched().await? {
                Some(children) => children,
                None => return Ok(Stand::Gone),
            },
        };
        match self.is_alone(&children) {
            true => self.ground.alone(sequence),
            false => self.ground.shared(),
        }
        Box::pin(self.judge(children)).await
    }

    /// Whether its node is there, and nothing else that matters.
    fn is_alone(&self, children: &[String]) -> bool {
        let own = self.own.as_ref().map(|(name, _)| name);
        let line = contenders(children);
        line.len() == 1 && Some(&line[0].name) == own && !was_semaphore(children)
    }

    /// Lists the line, and watches for its next change; none if the name's node is gone.
    async fn list_watched(&mut self) -> Result<Option<Vec<String>>, Fail> {
        let base = self.base();
        let listed = self.link.again(|| self.link.wire.list_watched(base));
        let (children, watch) = match listed.await {
            Err(Trouble::NoNode) => return Ok(None),
            listed => listed?,
        };
        self.behind = Some(watch);
        Ok(Some(children))
    }

    /// Looks at the line again.
    pub(super) async fn look(&mut self) -> Result<Stand, Fail> {
        let base = self.base();
        match self.link.again(|| self.link.wire.list(base)).await {
            Ok(children) => self.judge(children).await,
            Err(Trouble::NoNode) => Ok(Stand::Gone),
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn judge(&mut self, mut children: Vec<String>) -> Result<Stand, Fail> {
        loop {
            let own = self.own.as_ref().map_or("", |(name, _)| name);
            match verdict(&children, own, self.mode) {
                Verdict::Missing => return Ok(Stand::Gone),
                Verdict::Conflict(kind) => return Err(Fail::Refused(conflict(kind))),
                Verdict::Held { wanted } => {
                    if was_semaphore(&children)
                        && let Some(refusal) = semaphore_at(&self.link, self.base()).await?
                    {
                        return Err(Fail::Refused(refusal));
                    }
                    return Ok(Stand::Held { wanted });
                }
                Verdict::Behind { ahead, watch, next } => {
                    let path = format!("{}/{watch}", self.base());
                    let watched = self.link.again(|| self.link.wire.read_watched(&path));
                    match watched.await {
                        Ok((_, watch)) => return Ok(Stand::Wait { ahead, watch, next }),
                        Err(Trouble::NoNode) => {}
                        Err(trouble) => return Err(trouble.into()),
                    }
                }
            }
            let base = self.base();
            children = match self.link.again(|| self.link.wire.list(base)).await {
                Err(Trouble::NoNode) => return Ok(Stand::Gone),
                listed => listed?,
            };
        }
    }

    /// Whether its node is there, and whether somebody is behind it. Tells the next change if nobody is.
    pub(super) async fn wanted(&mut self) -> Result<Option<bool>, Fail> {
        let Some(children) = self.list_watched().await? else {
            return Ok(None);
        };
        if !self.is_alone(&children) {
            self.ground.shared();
        }
        let line = contenders(&children);
        let own = self.own.as_ref().map_or("", |(name, _)| name);
        let at = line.iter().position(|node| node.name == own);
        Ok(at.map(|at| at + 1 < line.len()))
    }

    /// Leaves the line; says whether it was there.
    pub(super) async fn leave(&mut self) -> Result<bool, Fail> {
        let Some(path) = self.path() else {
            return Ok(false);
        };
        let there = self.link.delete(&path).await?;
        self.own = None;
        // Our own deletion has fired it: nothing is left to take back at the server.
        self.behind = None;
        let unknown = Ground::new(self.ground.base.clone());
        let ground = std::mem::replace(&mut self.ground, unknown);
        if there {
            self.link.grounds.keep(&self.name, ground);
        }
        Ok(there)
    }

    /// A writer goes on as a reader, in its place: Curator's form since 5.5.
    pub(super) async fn downgrade(&mut self) -> Result<bool, Fail> {
        let (Some(old), czxid) = (self.path(), self.czxid()) else {
            return Ok(false);
        };
        let sequence = old.get(old.len() - 10..).unwrap_or("");
        let name = format!("{}{sequence}", prefix(self.id, marker(Mode::Read)));
        let new = format!("{}/{name}", self.base());
        (self.note.czxid, self.note.weight) = (czxid, Mode::Read.weight());
        let data = self.note.write();
        let wire = &self.link.wire;
        let swap = async || match wire.swap(&old, &new, &data).await {
            // Perhaps by the request whose answer was lost.
            Err(Trouble::NoNode | Trouble::Exists) => wire.read(&new).await.map(|_| ()),
            swapped => swapped,
        };
        let swapped = self.link.again(swap);
        match swapped.await {
            Ok(()) => {}
            Err(Trouble::NoNode) => return Ok(false),
            Err(trouble) => return Err(trouble.into()),
        }
        if let Some(own) = &mut self.own {
            own.0 = name;
        }
        self.mode = Mode::Read;
        // The reader's node took a number as well.
        self.ground.shared();
        Ok(true)
    }
}

/// What keeps the name from being used otherwise, if it is in use as a semaphore.
async fn semaphore_at(link: &Link, base: &str) -> Result<Option<Error>, Fail> {
    for below in [LEASES, LOCKS] {
        let parent = format!("{base}/{below}");
        let listed = link.again(|| link.wire.list(&parent)).await;
        let children = match listed {
            Err(Trouble::NoNode) => continue,
            listed => listed?,
        };
        if let Some(first) = contenders(&children).first() {
            let path = format!("{parent}/{}", first.name);
            let read = link.again(|| link.wire.read(&path)).await;
            return match read {
                Ok((data, _)) => Ok(Some(used_as_semaphore(Note::read(&data).as_ref()))),
                Err(Trouble::NoNode) => continue,
                Err(trouble) => Err(trouble.into()),
            };
        }
    }
    Ok(None)
}

/// The refusal of a name that is in use as a semaphore.
pub(super) fn used_as_semaphore(note: Option<&Note>) -> Error {
    match note {
        Some(note) if note.capacity > 1 => Error::from(Refusal::Capacity(note.capacity)),
        _ => refused("the name is in use as a semaphore; use it so, or wait until it is free"),
    }
    .on("zookeeper")
}

/// The refusal of a name that somebody before us uses as this.
pub(super) fn conflict(kind: Kind) -> Error {
    match kind {
        Kind::Mutex => Error::from(Refusal::Capacity(1)).on("zookeeper"),
        Kind::Read | Kind::Write => Error::from(Refusal::Capacity(RW_CAPACITY)).on("zookeeper"),
        Kind::Lease => used_as_semaphore(None),
        Kind::Kazoo => refused(
            "the name is in use by kazoo with node names of its own, which ignores others: \
             give its lock the node name \"-lock-\" (see the engine's documentation)",
        ),
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Conflict, Step::Claim, what).on("zookeeper")
}

pub(super) const fn is_full(sequence: i64) -> bool {
    sequence < 0 || sequence >= SEQUENCE_END
}

pub(super) fn overflow(base: &str) -> Error {
    let what = format!(
        "the sequence below {base} is about to overflow: let everybody release the name, and delete the node \
         (the server does so by itself once it is empty, unless the sequence has overflowed)"
    );
    Error::new(ErrorKind::Unavailable, Step::Claim, what).on("zookeeper")
}
