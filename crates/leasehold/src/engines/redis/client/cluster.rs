//! Which server of a cluster has which slot.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::error::Trouble;
use super::connection::{Channel, Conn, Target};
use super::resp::{Call, Reply};
use super::server::{Common, Server};
use super::stream::Address;
use crate::engine::Host;
use crate::sync::Shared;

/// The servers and their slots, as they were last seen.
pub(in super::super) struct Cluster {
    common: Common,
    /// Where this process listens: each channel on the server that has its slot.
    channels: Vec<(u16, Channel)>,
    map: Shared<Map>,
    version: AtomicU64,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Map {
    slots: Vec<Range>,
    masters: HashMap<Address, Arc<Server>>,
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
        let has = |range: &&Range| (range.first..=range.last).contains(&slot);
        self.slots.iter().find(has).map(|range| &range.master)
    }
}

impl Cluster {
    pub(in super::super) fn new(common: Common, channels: Vec<(u16, Channel)>) -> Self {
        Self {
            common,
            channels,
            map: Shared::default(),
            version: AtomicU64::new(0),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    /// Every master, as it is now.
    pub(in super::super) async fn masters(&self) -> Result<Vec<Arc<Server>>, Trouble> {
        self.refresh().await?;
        Ok(self.map.lock().masters.values().cloned().collect())
    }

    /// The server that has a slot.
    pub(in super::super) async fn of_slot(&self, slot: u16) -> Result<Arc<Server>, Trouble> {
        if let Some(server) = self.known(slot) {
            return Ok(server);
        }
        Box::pin(self.refresh()).await?;
        self.known(slot)
            .ok_or_else(|| Trouble::Down(format!("no server has slot {slot}")))
    }

    /// The server that an `ASK` names: the slot is on its way there. One without a slot yet is asked on a connection
    /// that ends with this call.
    pub(in super::super) fn importing(&self, ask: &str) -> Result<Arc<Server>, Trouble> {
        let place = ask.split(' ').nth(1).unwrap_or_default();
        // Without brackets, also for an address with colons.
        let (name, port) = place.rsplit_once(':').unwrap_or_default();
        let port = port.parse().map_err(|_| Trouble::strange(ask))?;
        let address = Address::Tcp(Host {
            name: name.to_owned(),
            port,
        });
        let known = self.map.lock().masters.get(&address).cloned();
        Ok(known.unwrap_or_else(|| self.common.server(Some(address), [])))
    }

    fn known(&self, slot: u16) -> Option<Arc<Server>> {
        let map = self.map.lock();
        let server = map.masters.get(map.master(slot)?);
        server.filter(|server| !server.is_over()).cloned()
    }

    /// Looks where the slots are, unless another call has looked since this one began.
    pub(in super::super) async fn refresh(&self) -> Result<(), Trouble> {
        let seen = self.version.load(Ordering::Acquire);
        let _one_at_a_time = self.refreshing.lock().await;
        if self.version.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let mut members: Vec<_> = self.map.lock().masters.keys().cloned().collect();
        members.extend(self.common.config.hosts.iter().cloned());
        let mut last = Trouble::Down("no member was given".to_owned());
        for member in members {
            match self.ask(&member).await {
                Ok(slots) => {
                    self.take(slots);
                    let _ = self.version.fetch_add(1, Ordering::AcqRel);
                    return Ok(());
                }
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    fn take(&self, slots: Vec<Range>) {
        let mut map = self.map.lock();
        map.slots = slots;
        let masters: Vec<_> = map.slots.iter().map(|range| range.master.clone()).collect();
        map.masters
            .retain(|master, server| masters.contains(master) && !server.is_over());
        for master in masters {
            let here = |slot: u16| map.master(slot) == Some(&master);
            let channels = self.channels.iter().filter(|(slot, _)| here(*slot));
            let channels: BTreeSet<_> = channels.map(|(_, channel)| channel.clone()).collect();
            match map.masters.get(&master) {
                Some(server) => server.listen(channels),
                None => {
                    let server = self.common.server(Some(master.clone()), channels);
                    let _ = map.masters.insert(master, server);
                }
            }
        }
    }

    async fn ask(&self, member: &Address) -> Result<Vec<Range>, Trouble> {
        let config = &self.common.config;
        let target = Target {
            patience: config.patience / 2,
            ..Target::new(config, member.clone())
        };
        let ranges = Conn::ask(&target, Call::new("CLUSTER SLOTS"))
            .await?
            .list()?;
        if ranges.is_empty() {
            return Err(Trouble::Down(
                "the server knows of no slots: is it a member of a cluster?".to_owned(),
            )
            .from(member));
        }
        ranges
            .into_iter()
            .map(|range| read(range, member))
            .collect()
    }
}

fn read(range: Reply, asked: &Address) -> Result<Range, Trouble> {
    let mut words = range.list()?.into_iter();
    let mut next = move || {
        words
            .next()
            .ok_or_else(|| Trouble::strange("a range of slots with too few fields"))
    };
    let (first, last) = (next()?.number()?, next()?.number()?);
    let mut node = next()?.list()?.into_iter();
    let mut next = move || node.next().unwrap_or(Reply::Nil);
    // A member that does not know its own name means the one it was asked by.
    let name = match (next(), asked) {
        (Reply::Text(name), _) if !name.is_empty() => String::from_utf8_lossy(&name).into_owned(),
        (_, Address::Tcp(host)) => host.name.clone(),
        (other, _) => return Err(Trouble::strange(other)),
    };
    let port = next().number()?;
    let master = Address::Tcp(Host { name, port });
    Ok(Range {
        first,
        last,
        master,
    })
}
