//! A claim on a semaphore, as Curator's `InterProcessSemaphoreV2` has it: a place in `locks` while it asks, a node in
//! `leases` per permit. Only the front one of `locks` makes leases, so several permits are all or none.

use std::sync::Arc;

use super::link::Link;
use super::node::{Kind, LEASES, LOCKS, Node, contenders, prefix};
use super::note::Note;
use super::rule::{Verdict, verdict};
use super::seat::{Fail, Stand, conflict, is_full, overflow, used_as_semaphore};
use super::taking::take_place;
use super::wire::{Facts, Trouble, Watch, With};
use crate::claim::ClaimId;
use crate::engine::Mode;

pub(super) struct Permits {
    pub(super) link: Arc<Link>,
    base: String,
    locks: String,
    leases: String,
    id: ClaimId,
    pub(super) note: Note,
    /// Its place among those who ask.
    asking: Option<String>,
    /// Its permits.
    own: Vec<(String, Facts)>,
    /// A watch that nobody needs: taking it back would cost a request, waiting for it costs nothing.
    stray: Option<Watch>,
}

impl Permits {
    pub(super) fn new(link: Arc<Link>, base: String, id: ClaimId, note: Note) -> Self {
        let (locks, leases) = (format!("{base}/{LOCKS}"), format!("{base}/{LEASES}"));
        Self {
            link,
            base,
            locks,
            leases,
            id,
            note,
            asking: None,
            own: Vec::new(),
            stray: None,
        }
    }

    pub(super) fn czxid(&self) -> i64 {
        self.own.first().map_or(0, |(_, facts)| facts.czxid)
    }

    pub(super) fn path(&self) -> Option<String> {
        let (name, _) = self.own.first()?;
        Some(format!("{}/{name}", self.leases))
    }

    pub(super) async fn join(&mut self) -> Result<Stand, Fail> {
        let prefix = prefix(self.id, "lock-");
        let (locks, with) = (&self.locks, With::List);
        let taken = take_place(&self.link, locks, &prefix, &self.note, with).await?;
        let full = Node::parse(&taken.own.0).is_none_or(|node| is_full(node.sequence));
        self.asking = Some(taken.own.0);
        let (children, stray) = taken.listed.unwrap_or_default();
        self.stray = stray;
        let base = &self.base;
        let others = match self.link.again(|| self.link.wire.list(base)).await {
            Err(Trouble::NoNode) => Vec::new(),
            listed => listed?,
        };
        let other = contenders(&others).first().map(|node| node.kind);
        if full || other.is_some() {
            let refusal = other.map_or_else(|| overflow(&self.locks), conflict);
            return Err(Fail::Refused(refusal));
        }
        self.judge(children).await
    }

    pub(super) async fn look(&mut self) -> Result<Stand, Fail> {
        if self.own.is_empty() {
            let locks = &self.locks;
            let children = match self.link.again(|| self.link.wire.list(locks)).await {
                Err(Trouble::NoNode) => return Ok(Stand::Gone),
                listed => listed?,
            };
            return self.judge(children).await;
        }
        let leases = &self.leases;
        let listed = self.link.again(|| self.link.wire.list_watched(leases));
        let (children, watch) = match listed.await {
            Err(Trouble::NoNode) => return Ok(Stand::Gone),
            listed => listed?,
        };
        self.count(&children, watch).await
    }

    async fn judge(&mut self, mut children: Vec<String>) -> Result<Stand, Fail> {
        loop {
            let own = self.asking.as_deref().unwrap_or("");
            match verdict(&children, own, Mode::Mutex) {
                Verdict::Missing => return Ok(Stand::Gone),
                Verdict::Conflict(kind) => return Err(Fail::Refused(conflict(kind))),
                Verdict::Held { .. } => return self.take().await,
                Verdict::Behind { ahead, watch, .. } => {
                    let path = format!("{}/{watch}", self.locks);
                    let watched = self.link.again(|| self.link.wire.read_watched(&path));
                    match watched.await {
                        Ok((data, watch)) => {
                            self.agree(&data)?;
                            let next = false;
                            return Ok(Stand::Wait { ahead, watch, next });
                        }
                        Err(Trouble::NoNode) => {}
                        Err(trouble) => return Err(trouble.into()),
                    }
                }
            }
            let locks = &self.locks;
            children = match self.link.again(|| self.link.wire.list(locks)).await {
                Err(Trouble::NoNode) => return Ok(Stand::Gone),
                listed => listed?,
            };
        }
    }

    /// At the front of those who ask: makes the leases and counts.
    async fn take(&mut self) -> Result<Stand, Fail> {
        let (prefix, data) = (prefix(self.id, "lease-"), self.note.write());
        loop {
            let count = self.note.weight;
            match self
                .link
                .wire
                .make_many(&self.leases, &prefix, &data, count)
                .await
            {
                Ok((own, children, watch)) => {
                    let full = |(name, _): &(String, Facts)| {
                        Node::parse(name).is_none_or(|node| is_full(node.sequence))
                    };
                    let full = own.iter().any(full);
                    self.own = own;
                    if full {
                        return Err(Fail::Refused(overflow(&self.leases)));
                    }
                    return self.count(&children, watch).await;
                }
                Err(Trouble::NoNode) => self.link.mkdir(&self.leases).await?,
                Err(Trouble::Unknown(why)) => {
                    tracing::debug!(why, "which leases were made is not known");
                    self.clear(&prefix).await?;
                }
                // Some of them may have been made.
                Err(trouble) => {
                    self.clear(&prefix).await?;
                    return Err(match trouble {
                        Trouble::Exists => Fail::Refused(overflow(&self.leases)),
                        trouble => trouble.into(),
                    });
                }
            }
        }
    }

    /// Deletes every lease of this claim that may have been made.
    async fn clear(&self, prefix: &str) -> Result<(), Fail> {
        let leases = &self.leases;
        self.link.again(|| self.link.wire.sync(leases)).await?;
        let children = match self.link.again(|| self.link.wire.list(leases)).await {
            Err(Trouble::NoNode) => return Ok(()),
            listed => listed?,
        };
        for name in children.iter().filter(|name| name.starts_with(prefix)) {
            let _ = self.link.delete(&format!("{leases}/{name}")).await?;
        }
        Ok(())
    }

    async fn count(&mut self, children: &[String], watch: Watch) -> Result<Stand, Fail> {
        let mut leases = contenders(children);
        leases.retain(|node| node.kind == Kind::Lease);
        let ours = |node: &Node| node.claim() == Some(self.id);
        if leases.iter().filter(|node| ours(node)).count() < self.own.len() {
            return Ok(Stand::Gone);
        }
        let mut ahead: Vec<_> = leases.iter().filter(|node| !ours(node)).collect();
        if let Some(first) = ahead.first() {
            let path = format!("{}/{}", self.leases, first.name);
            let read = self.link.again(|| self.link.wire.read(&path)).await;
            match read {
                Ok((data, _)) => self.agree(&data)?,
                Err(Trouble::NoNode) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        if leases.len() <= self.note.capacity as usize {
            if let Some(asking) = self.asking.take() {
                let path = format!("{}/{asking}", self.locks);
                let _ = self.link.delete(&path).await?;
            }
            self.stray = Some(watch);
            return Ok(Stand::Held { wanted: false });
        }
        ahead.dedup_by_key(|node| node.claim());
        let ahead = u32::try_from(ahead.len()).unwrap_or(u32::MAX);
        let next = false;
        Ok(Stand::Wait { ahead, watch, next })
    }

    /// Refuses if somebody else uses the name with another number of permits. Curator says none.
    fn agree(&self, data: &[u8]) -> Result<(), Fail> {
        match Note::read(data) {
            Some(note) if note.capacity != self.note.capacity => {
                Err(Fail::Refused(used_as_semaphore(Some(&note))))
            }
            _ => Ok(()),
        }
    }

    /// Whether its permits are there, and whether somebody asks for some.
    pub(super) async fn wanted(&mut self) -> Result<Option<bool>, Fail> {
        let locks = &self.locks;
        match self.link.again(|| self.link.wire.list(locks)).await {
            Err(Trouble::NoNode) => Ok(Some(false)),
            listed => Ok(Some(!listed?.is_empty())),
        }
    }

    pub(super) async fn leave(&mut self) -> Result<bool, Fail> {
        let mut there = false;
        while let Some((name, _)) = self.own.last() {
            there |= self.link.delete(&format!("{}/{name}", self.leases)).await?;
            let _ = self.own.pop();
        }
        if let Some(asking) = &self.asking {
            there |= self
                .link
                .delete(&format!("{}/{asking}", self.locks))
                .await?;
            self.asking = None;
        }
        Ok(there)
    }
}
