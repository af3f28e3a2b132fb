//! Which server of a cluster has which slot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::Trouble;
use super::keys::Bucket;
use super::link::Link;
use super::resp::{Call, Reply};
use super::servers::{Fixed, Servers};
use super::stream::Address;
use super::wire::Conn;
use crate::sync::Shared;

/// The slots as they were last seen.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    map: Shared<Map>,
    version: AtomicU64,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Map {
    slots: Vec<Range>,
    links: HashMap<Address, Arc<Link>>,
}

/// Slots of one master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    master: Address,
}

impl Map {
    fn master(&self, slot: u16) -> Option<&Address> {
        let range = self
            .slots
            .iter()
            .find(|range| (range.first..=range.last).contains(&slot));
        range.map(|range| &range.master)
    }

    fn buckets(&self, master: &Address) -> Vec<Bucket> {
        Bucket::all()
            .filter(|bucket| self.master(bucket.slot()) == Some(master))
            .collect()
    }
}

impl Cluster {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.map.lock().links.values().cloned().collect()
    }

    /// The buckets that a server has.
    pub(super) fn buckets(&self, master: &Address) -> impl Iterator<Item = Bucket> + use<> {
        self.map.lock().buckets(master).into_iter()
    }

    pub(super) async fn link(&self, servers: &Servers, slot: u16) -> Result<Arc<Link>, Trouble> {
        if let Some(link) = self.known(slot) {
            return Ok(link);
        }
        Box::pin(self.refresh(servers, self.version())).await?;
        self.known(slot)
            .ok_or_else(|| Trouble::Down(format!("no server has slot {slot}")))
    }

    fn known(&self, slot: u16) -> Option<Arc<Link>> {
        let map = self.map.lock();
        map.links.get(map.master(slot)?).cloned()
    }

    /// Looks where the slots are, unless somebody has since `seen`.
    pub(super) async fn refresh(&self, servers: &Servers, seen: u64) -> Result<(), Trouble> {
        let _one_at_a_time = self.refreshing.lock().await;
        if self.version() != seen {
            return Ok(());
        }
        let mut known: Vec<_> = self.map.lock().links.keys().cloned().collect();
        known.extend(servers.config.hosts.iter().cloned());
        let mut last = Trouble::Down("no member was given".to_owned());
        for member in known {
            match ask(servers, &member).await {
                Ok(slots) => {
                    self.take(servers, slots);
                    let _ = self.version.fetch_add(1, Ordering::AcqRel);
                    return Ok(());
                }
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    fn take(&self, servers: &Servers, slots: Vec<Range>) {
        let mut map = self.map.lock();
        let before: HashMap<_, _> = map
            .links
            .keys()
            .map(|master| (master.clone(), map.buckets(master)))
            .collect();
        map.slots = slots;
        let masters: Vec<_> = map.slots.iter().map(|range| range.master.clone()).collect();
        map.links.retain(|master, _| masters.contains(master));
        for master in masters {
            let now = map.buckets(&master);
            let link = map.links.entry(master.clone()).or_insert_with(|| {
                servers.start(Arc::new(Fixed(servers.config.target(master.clone()))))
            });
            if before.get(&master).is_some_and(|before| *before != now) {
                // What it listens to has changed.
                link.renew();
            }
        }
    }
}

async fn ask(servers: &Servers, member: &Address) -> Result<Vec<Range>, Trouble> {
    let patience = servers.config.patience / 2;
    let target = servers.config.target(member.clone());
    let asked =
        tokio::time::timeout(patience, Conn::ask(&target, Call::new("CLUSTER SLOTS"))).await;
    let ranges =
        asked.unwrap_or_else(|_| Err(Trouble::Down(format!("{member} does not answer"))))?;
    let ranges: Result<Vec<_>, _> = ranges
        .list()?
        .into_iter()
        .map(|range| read(range, member))
        .collect();
    match ranges {
        Ok(ranges) if ranges.is_empty() => {
            Err(Trouble::Down(format!("{member} knows of no slots")))
        }
        ranges => ranges,
    }
}

fn read(range: Reply, asked: &Address) -> Result<Range, Trouble> {
    let mut words = range.list()?.into_iter();
    let mut next = move || {
        words
            .next()
            .ok_or_else(|| Trouble::strange("a short range"))
    };
    let (first, last) = (next()?.number()?, next()?.number()?);
    let mut node = next()?.list()?.into_iter();
    let (host, port) = (
        node.next().unwrap_or(Reply::Nil),
        node.next().unwrap_or(Reply::Nil),
    );
    // A member that does not know its own name means the one it was asked by.
    let host = match (host, asked) {
        (Reply::Text(host), _) if !host.is_empty() => String::from_utf8_lossy(&host).into_owned(),
        (_, Address::Tcp(host, _)) => host.clone(),
        (other, _) => return Err(Trouble::strange(other)),
    };
    Ok(Range {
        first,
        last,
        master: Address::Tcp(host, port.number()?),
    })
}
