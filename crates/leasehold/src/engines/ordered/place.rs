//! A claim's nodes at the server: made, looked at, turned into a reader's, deleted.

use std::sync::Arc;

use super::data::{Note, REVOKE, Trace};
use super::rule::{self, Stand};
use super::{Fail, Kind, Listed, Made, New, Rooms, Server, Watch};
use crate::claim::{Claim, Mode};
use crate::engine::{Ended, Identity, RW_CAPACITY};
use crate::error::{Error, ErrorKind};
use crate::line::{LINE_MAX, Refusal};

/// Where a claim stands, and what to wait for.
pub(super) enum Found {
    Held {
        wanted: bool,
        /// The next change of the line.
        behind: Option<Watch>,
    },
    Waits {
        ahead: u32,
        watch: Watch,
        behind: Option<Watch>,
    },
    /// No node was made, because the claim would have had to wait.
    Busy,
    Gone,
}

/// The state of a holder's own node.
pub(super) enum Own {
    There { asked: bool, watch: Watch },
    Gone,
}

/// The nodes of one claim.
pub(super) struct Place<S> {
    pub(super) server: Arc<S>,
    claim: Claim,
    rooms: Rooms,
    note: Note,
    /// Its node in the line.
    node: Option<String>,
    /// Its nodes in the room of permits.
    permits: Vec<String>,
    /// The number that its fences come from.
    pub(super) number: i64,
    /// Whether a request to make nodes was sent whose outcome is not recorded here.
    unsettled: bool,
    /// Whether the server refused to delete the nodes.
    stuck: bool,
}

impl<S: Server> Place<S> {
    pub(super) fn new(server: Arc<S>, claim: &Claim, who: &Arc<Identity>) -> Self {
        Self {
            rooms: server.rooms(&claim.name, claim.mode),
            note: Note {
                weight: claim.mode.weight(),
                capacity: claim.mode.capacity(),
                lease: server.timeout(),
                number: 0,
                who: who.clone(),
            },
            server,
            claim: claim.clone(),
            node: None,
            permits: Vec::new(),
            number: 0,
            unsettled: false,
            stuck: false,
        }
    }

    /// Joins the line. Dropped, it may have joined: `leave` finds out.
    pub(super) async fn join(&mut self) -> Result<Found, Fail> {
        // Before this nothing is sent, so that a caller who gives up during an outage leaves no work behind.
        self.server.ready().await?;
        let kind = match self.claim.mode {
            Mode::Mutex | Mode::Permits { .. } => Kind::Mutex,
            Mode::Read => Kind::Read,
            Mode::Write => Kind::Write,
        };
        let made = self.make(&self.rooms.line.clone(), kind, 1).await?;
        self.node = made.names.into_iter().next();
        if self.claim.waits && made.listed.nodes.len() > LINE_MAX {
            return Err(Error::from(Refusal::Full).into());
        }
        match (
            &self.node,
            rule::refuses(&made.listed.nodes, self.claim.mode),
        ) {
            (Some(_), _) => self.judge(made.listed).await,
            (None, Some(kind)) => Err(conflict(kind)),
            (None, None) => match self
                .server
                .conflict(&self.claim, &made.listed.nodes)
                .await?
            {
                Some(refusal) => Err(refusal),
                None => Ok(Found::Busy),
            },
        }
    }

    /// Looks where the claim stands now.
    pub(super) async fn look(&mut self) -> Result<Found, Fail> {
        match &self.rooms.permits {
            Some(room) if !self.permits.is_empty() => {
                let listed = self.server.list(room).await?;
                self.count(listed).await
            }
            _ => {
                let listed = self.server.list(&self.rooms.line).await?;
                self.judge(listed).await
            }
        }
    }

    /// Applies the rule of the line.
    async fn judge(&mut self, mut listed: Listed) -> Result<Found, Fail> {
        loop {
            let own = self.node.as_deref().unwrap_or("");
            match rule::stand(&listed.nodes, own, self.claim.mode) {
                Stand::Missing => return Ok(Found::Gone),
                Stand::Conflict(kind) => return Err(conflict(kind)),
                Stand::Held { wanted } => {
                    if let Some(refusal) = self.server.conflict(&self.claim, &listed.nodes).await? {
                        return Err(refusal);
                    }
                    let behind = listed.watch;
                    return match self.rooms.permits.clone() {
                        None => {
                            self.renumber();
                            Ok(Found::Held { wanted, behind })
                        }
                        Some(room) => self.take_permits(&room).await,
                    };
                }
                Stand::Behind { ahead, node } => {
                    if let Some((data, watch)) = self.server.read(&self.rooms.line, &node).await? {
                        self.agree(&data)?;
                        let behind = listed.watch;
                        return Ok(Found::Waits {
                            ahead,
                            watch,
                            behind,
                        });
                    }
                }
            }
            listed = self.server.list(&self.rooms.line).await?;
        }
    }

    /// First in line: makes a node per permit.
    async fn take_permits(&mut self, room: &str) -> Result<Found, Fail> {
        let made = self.make(room, Kind::Permit, self.note.weight).await?;
        self.permits = made.names;
        self.count(made.listed).await
    }

    async fn make(&mut self, room: &str, kind: Kind, count: u32) -> Result<Made, Fail> {
        let new = New {
            claim: self.claim.id,
            kind,
            data: &self.note.write(),
            waits: self.claim.waits,
        };
        self.unsettled = true;
        let made = self.server.make(room, &new, count).await?;
        self.unsettled = false;
        self.number = made.number;
        Ok(made)
    }

    /// Applies the rule of permits. The claim leaves the line once it holds.
    async fn count(&mut self, listed: Listed) -> Result<Found, Fail> {
        let (id, own) = (self.claim.id, self.permits.len());
        let room = self.rooms.permits.as_deref().unwrap_or("");
        let other = |node: &&super::Node| node.kind == Kind::Permit && node.claim != Some(id);
        if let Some(other) = listed.nodes.iter().find(other)
            && let Some((data, _)) = self.server.read(room, &other.name).await?
        {
            self.agree(&data)?;
        }
        match rule::permits(&listed.nodes, id, own, self.note.capacity) {
            Stand::Held { wanted } => {
                if let Some(node) = &self.node {
                    let _ = self.server.delete(&self.rooms.line, node).await?;
                }
                self.node = None;
                self.renumber();
                let behind = None;
                Ok(Found::Held { wanted, behind })
            }
            Stand::Behind { ahead, .. } => match listed.watch {
                Some(watch) => Ok(Found::Waits {
                    ahead,
                    watch,
                    behind: None,
                }),
                None => Ok(Found::Gone),
            },
            Stand::Missing | Stand::Conflict(_) => Ok(Found::Gone),
        }
    }

    /// Takes the number of the grant, where the server has one.
    fn renumber(&mut self) {
        let own = self.own();
        if let Some(number) = own.and_then(|(room, node)| self.server.number(room, node)) {
            self.number = number;
        }
    }

    /// Refuses if another claim uses the name with another capacity. Nodes of other programs tell none.
    fn agree(&self, data: &[u8]) -> Result<(), Fail> {
        match Note::read(data) {
            Some(note) if note.capacity != self.note.capacity => {
                Err(Error::from(Refusal::Capacity(note.capacity)).into())
            }
            _ => Ok(()),
        }
    }

    /// For a holder: whether its nodes exist, whether a claim waits, and the next change of the line.
    pub(super) async fn behind(&mut self) -> Result<Option<(bool, Option<Watch>)>, Fail> {
        let line = self.server.list(&self.rooms.line).await?;
        let Some(room) = &self.rooms.permits else {
            let wanted = rule::behind(&line.nodes, self.node.as_deref().unwrap_or(""));
            return Ok(wanted.map(|wanted| (wanted, line.watch)));
        };
        let permits = self.server.list(room).await?;
        let (id, own) = (self.claim.id, self.permits.len());
        let there = rule::permits(&permits.nodes, id, own, u32::MAX) != Stand::Missing;
        Ok(there.then_some((!line.nodes.is_empty(), None)))
    }

    /// The room and the name of the node that a holder watches.
    fn own(&self) -> Option<(&str, &str)> {
        match (&self.rooms.permits, self.permits.first()) {
            (Some(room), Some(permit)) => Some((room, permit)),
            _ => Some((&self.rooms.line, self.node.as_deref()?)),
        }
    }

    /// A watch for the end of a waiter's node.
    pub(super) fn watch_own(&self) -> Option<Watch> {
        let (room, node) = self.own()?;
        self.server.watch_own(room, node)
    }

    /// Reads and watches a holder's node. A request to give the lock up is overwritten by our data, so that `status`
    /// shows the owner and a second request changes the node again.
    pub(super) async fn read_own(&mut self) -> Result<Own, Fail> {
        let Some((room, node)) = self.own() else {
            return Ok(Own::Gone);
        };
        let Some((data, watch)) = self.server.read(room, node).await? else {
            return Ok(Own::Gone);
        };
        let asked = data == REVOKE;
        if asked && !self.server.write(room, node, &self.note.write()).await? {
            return Ok(Own::Gone);
        }
        Ok(Own::There { asked, watch })
    }

    /// A writer goes on as a reader in its place; false if its node does not exist.
    pub(super) async fn downgrade(&mut self) -> Result<bool, Fail> {
        let Some(node) = &self.node else {
            return Ok(false);
        };
        let note = Note {
            number: self.number,
            weight: Mode::Read.weight(),
            ..self.note.clone()
        };
        let new = New {
            claim: self.claim.id,
            kind: Kind::Read,
            data: &note.write(),
            waits: true,
        };
        let reader = self.server.downgrade(&self.rooms.line, node, &new);
        let Some(reader) = reader.await? else {
            return Ok(false);
        };
        (self.node, self.note) = (Some(reader), note);
        self.claim.mode = Mode::Read;
        Ok(true)
    }

    /// Deletes the claim's nodes; answers whether there were any.
    pub(super) async fn leave(&mut self) -> Result<bool, Fail> {
        let left = self.delete().await;
        self.stuck = matches!(left, Err(Fail::Refused(..)));
        left
    }

    /// Asks again for what the server refused to delete (the login has lost its rights, perhaps), as long as the session
    /// lives: it keeps the nodes, and so the name stays locked.
    pub(super) async fn leave_at_last(&mut self) {
        let over = self.server.over().clone();
        while self.stuck {
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(self.claim.lease / 3) => {}
            }
            let _ = self.leave().await;
        }
    }

    async fn delete(&mut self) -> Result<bool, Fail> {
        let mut there = false;
        if let Some(room) = &self.rooms.permits {
            while let Some(permit) = self.permits.last() {
                there |= self.server.delete(room, permit).await?;
                let _ = self.permits.pop();
            }
            if self.unsettled {
                there |= self.server.clear(room, self.claim.id).await?;
            }
        }
        if let Some(node) = &self.node {
            there |= self.server.delete(&self.rooms.line, node).await?;
            self.node = None;
        } else if self.unsettled {
            there |= self.server.clear(&self.rooms.line, self.claim.id).await?;
        }
        self.unsettled = false;
        Ok(there)
    }

    /// Why the claim's nodes do not exist any more, as far as it was written down.
    pub(super) async fn why_gone(&self) -> Ended {
        let traced = self.server.trace(&self.claim.name).await.ok().flatten();
        let trace = traced.and_then(|data| Trace::read(&data));
        let evicted = trace.and_then(|trace| trace.of(self.number));
        evicted.unwrap_or(Ended::Forgotten)
    }
}

/// The refusal of a name that is in use as another kind.
pub(in crate::engines) fn conflict(kind: Kind) -> Fail {
    let refused = |what: &str| Fail::Refused(ErrorKind::Conflict, what.to_owned());
    match kind {
        Kind::Mutex => Error::from(Refusal::Capacity(1)).into(),
        Kind::Read | Kind::Write => Error::from(Refusal::Capacity(RW_CAPACITY)).into(),
        Kind::Permit | Kind::Room => {
            refused("the name is in use as a semaphore; use it so, or wait until it is free")
        }
        Kind::Foreign => refused(
            "another program has a lock here that would not exclude ours (on ZooKeeper one of kazoo with node names of its \
             own, on etcd an RWMutex of Go): see \"With others\" in the engine's documentation, or use another name",
        ),
    }
}
