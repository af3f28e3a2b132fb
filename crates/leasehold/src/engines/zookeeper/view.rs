//! Who holds and who waits, as the nodes say it: also Curator's and kazoo's participants.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::link::{Link, failed};
use super::node::{Kind, LEASES, LOCKS, Node, contenders};
use super::note::Note;
use super::place::fence;
use super::wire::{Answer, Facts, Trouble};
use crate::engine::{ClaimView, Clock, Mode};
use crate::error::{Result, Step};

/// One claim found in a line.
#[derive(Debug)]
pub(super) struct Found {
    /// Its nodes.
    pub(super) paths: Vec<String>,
    /// The number its fences come from.
    pub(super) czxid: i64,
    pub(super) holds: bool,
    mode: Mode,
    note: Option<Note>,
    since: SystemTime,
}

impl Found {
    pub(super) fn view(&self, clock: &Clock, lease: Duration) -> ClaimView {
        let fence = fence(self.czxid).ok().filter(|_| self.holds);
        let who = self.note.as_ref().map(|note| (*note.who).clone());
        // The session may have spoken just now; nobody but the server knows.
        let known = self.note.as_ref().map(|note| note.lease);
        let lease = known.unwrap_or(lease);
        let until = clock.wall_time_of(clock.now()) + lease;
        let until = until.max(self.since + lease);
        let view = ClaimView::new(fence, self.mode, who, self.since, until);
        known.map_or(view.clone(), |lease| view.lease(lease))
    }
}

struct Read {
    node: Node,
    path: String,
    note: Option<Note>,
    facts: Facts,
}

/// The claims on the name whose node is `base`, in order of arrival.
pub(super) async fn look(link: &Link, base: &str) -> Result<Vec<Found>> {
    let looked = async {
        // Another server may know more than ours.
        link.again(|| link.wire.sync(base)).await?;
        let children = list(link, base).await?;
        let mut found = line(&read(link, base, &children).await?);
        if super::rule::was_semaphore(&children) {
            found.extend(semaphore(link, base).await?);
        }
        Ok(found)
    };
    looked
        .await
        .map_err(|trouble| failed(&trouble, Step::Inspect))
}

pub(super) async fn list(link: &Link, path: &str) -> Answer<Vec<String>> {
    match link.again(|| link.wire.list(path)).await {
        Err(Trouble::NoNode) => Ok(Vec::new()),
        listed => listed,
    }
}

async fn read(link: &Link, parent: &str, children: &[String]) -> Answer<Vec<Read>> {
    let nodes = contenders(children);
    let paths: Vec<_> = nodes
        .iter()
        .map(|node| format!("{parent}/{}", node.name))
        .collect();
    let all = link.again(|| link.wire.read_all(&paths)).await?;
    let mut read = Vec::with_capacity(nodes.len());
    for ((node, path), data) in nodes.into_iter().zip(paths).zip(all) {
        // Whoever is gone meanwhile is not in the line.
        let Some((data, facts)) = data else { continue };
        let note = Note::read(&data);
        read.push(Read {
            node,
            path,
            note,
            facts,
        });
    }
    Ok(read)
}

/// The line of a mutex or a read/write lock.
fn line(nodes: &[Read]) -> Vec<Found> {
    let mut found = Vec::with_capacity(nodes.len());
    let mut writers = false;
    for (at, read) in nodes.iter().enumerate() {
        let shares = matches!(read.node.kind, Kind::Read) || read.node.name.contains("__rlock__");
        let holds = if shares { !writers } else { at == 0 };
        writers |= !shares;
        let mode = match read.node.kind {
            Kind::Write => Mode::Write,
            _ if shares => Mode::Read,
            _ => Mode::Mutex,
        };
        found.push(one(read, mode, holds));
    }
    found
}

/// The line of a semaphore: those who have permits, then those who ask.
async fn semaphore(link: &Link, base: &str) -> Answer<Vec<Found>> {
    let (locks, leases) = (format!("{base}/{LOCKS}"), format!("{base}/{LEASES}"));
    let asking = read(link, &locks, &list(link, &locks).await?).await?;
    let permits = read(link, &leases, &list(link, &leases).await?).await?;
    let total = u32::try_from(permits.len()).unwrap_or(u32::MAX);
    let mode = |note: &Option<Note>| match note {
        Some(note) => Mode::Permits {
            count: note.weight,
            of: note.capacity,
        },
        None => Mode::Permits {
            count: 1,
            of: total.max(1),
        },
    };
    let mut found: Vec<Found> = Vec::new();
    for permit in &permits {
        let claim = permit.node.claim();
        let ours = permit.note.is_some();
        let last = found.last_mut().filter(|_| ours && claim.is_some());
        let same = |found: &Found| {
            let name = found.paths[0].rsplit('/').next().unwrap_or("");
            Node::parse(name).and_then(|node| node.claim()) == claim
        };
        if let Some(last) = last.filter(|found| same(found)) {
            last.paths.push(permit.path.clone());
            continue;
        }
        let waits = asking.iter().any(|asks| asks.node.claim() == claim);
        found.push(one(permit, mode(&permit.note), !waits));
    }
    for asks in &asking {
        let claim = asks.node.claim();
        let has = |permit: &&Read| permit.node.claim() == claim && claim.is_some();
        if permits.iter().find(has).is_none() {
            found.push(one(asks, mode(&asks.note), false));
        }
    }
    Ok(found)
}

fn one(read: &Read, mode: Mode, holds: bool) -> Found {
    let czxid = read.note.as_ref().map_or(0, |note| note.czxid);
    let since = u64::try_from(read.facts.ctime).unwrap_or(0);
    Found {
        paths: vec![read.path.clone()],
        czxid: if czxid == 0 { read.facts.czxid } else { czxid },
        holds,
        mode,
        note: read.note.clone(),
        since: UNIX_EPOCH + Duration::from_millis(since),
    }
}
