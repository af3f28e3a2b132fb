//! Locks over servers that order nodes: the life of a claim, written once.
//!
//! Such a server gives every node a place in an order, deletes the nodes of a session that ends, and tells of changes.
//! A claim is a node (for permits several). Its task makes the node, applies the [`rule`] to the list of all nodes, and
//! watches the one node that keeps it from holding. An engine says where its nodes are and how its server makes, lists,
//! watches and deletes them ([`Server`]); the rest is here.

mod claim;
pub(super) mod data;
mod fences;
pub(super) mod inspect;
mod place;
pub(super) mod rule;
mod servers;
mod session;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub(super) use self::fences::FenceFloor;
pub(super) use self::place::conflict;
pub(super) use self::session::OrderedSession;
use crate::claim::{Claim, ClaimId, Mode};
use crate::engine::Inbox;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;

/// A deployment that opens sessions at its servers.
#[async_trait]
pub(super) trait Deployment: fmt::Debug + Send + Sync + 'static {
    type Server: Server;

    /// The lease of the first session, before a claim has named its own.
    fn lease(&self) -> Duration;

    /// Opens a session whose nodes live at least `lease` after its last word. The inbox is told when the connection is
    /// lost.
    async fn open(&self, lease: Duration, inbox: Inbox) -> Result<Arc<Self::Server>>;
}

/// One session at a server that orders nodes.
///
/// Every method repeats its requests over lost connections until the outcome is certain. It fails when the server
/// refuses, or when the session is over: then all of its nodes are gone, or will be.
#[async_trait]
pub(super) trait Server: fmt::Debug + Send + Sync + 'static {
    /// The engine's name in errors.
    const KIND: &'static str;

    /// How long the server keeps the session's nodes after its last word.
    fn timeout(&self) -> Duration;

    /// Whether claims of this lease belong to this session: the server keeps the nodes of a dead process for as long
    /// as this lease needs, and no longer.
    fn fits(&self, lease: Duration) -> bool;

    /// What fences are counted from: the same for every client of the deployment.
    fn fence_floor(&self) -> FenceFloor;

    /// Cancelled when the session is over.
    fn over(&self) -> &CancellationToken;

    /// Ends the session.
    async fn close(self: Arc<Self>);

    /// Waits until there is a connection. Until then no request is sent.
    async fn ready(&self) -> Result<(), Fail>;

    /// Proves that the session was alive at the server after this call began. Not repeated.
    async fn prove(&self) -> Result<(), Fail>;

    /// Where the nodes of a name are.
    fn rooms(&self, name: &Name, mode: Mode) -> Rooms;

    /// Makes `count` nodes, or one of that weight, all or none, and lists the room. A lost answer is settled: the nodes
    /// were made once.
    async fn make(&self, room: &str, new: &New<'_>, count: u32) -> Result<Made, Fail>;

    /// Deletes every node of a claim that may have been made; false if there was none.
    async fn clear(&self, room: &str, claim: ClaimId) -> Result<bool, Fail>;

    /// The nodes of a room in their order, and a watch for the next change among them.
    async fn list(&self, room: &str) -> Result<Listed, Fail>;

    /// The data of a node and a watch for its change or deletion; none if the node does not exist.
    async fn read(&self, room: &str, node: &str) -> Result<Option<(Vec<u8>, Watch)>, Fail>;

    /// A watch for the end of a waiter's own node, which was in the last list, where the server tells of it for little.
    /// Otherwise the waiter finds out when its turn comes.
    fn watch_own(&self, _room: &str, _node: &str) -> Option<Watch> {
        None
    }

    /// The number that the fences of a claim come from, where it is that of the grant and not of the node: asked for when
    /// the claim holds.
    fn number(&self, _room: &str, _node: &str) -> Option<i64> {
        None
    }

    /// Writes the data of a node; false if the node does not exist.
    async fn write(&self, room: &str, node: &str, data: &[u8]) -> Result<bool, Fail>;

    /// Deletes a node; false if it did not exist.
    async fn delete(&self, room: &str, node: &str) -> Result<bool, Fail>;

    /// Puts a reader's node in a writer's place of the order; answers its name, or none if the writer's node does not
    /// exist.
    async fn downgrade(&self, room: &str, old: &str, new: &New<'_>)
    -> Result<Option<String>, Fail>;

    /// Why a claim at the front of its line must be refused: the name is in use as another kind, in another room.
    async fn conflict(&self, claim: &Claim, line: &[Node]) -> Result<Option<Fail>, Fail>;

    /// The nodes of a room in their order with what is stored of them, not older than this call.
    async fn look(&self, room: &str) -> Result<Vec<Stored>, Fail>;

    /// The names in use.
    async fn names(&self) -> Result<Vec<Name>, Fail>;

    /// The last trace of an eviction from a name.
    async fn trace(&self, name: &Name) -> Result<Option<Vec<u8>>, Fail>;

    /// Writes the trace of an eviction: the nodes, the evictor and the reason.
    async fn leave_trace(&self, name: &Name, data: &[u8]) -> Result<(), Fail>;
}

/// A node to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) claim: ClaimId,
    pub(super) kind: Kind,
    pub(super) data: &'a [u8],
    /// Whether the claim may wait. For one that may not, a server that can tell at once that another is in the room makes
    /// nothing.
    #[cfg_attr(
        not(feature = "etcd"),
        expect(dead_code, reason = "other servers make no node on a condition")
    )]
    pub(super) waits: bool,
}

/// Where the nodes of a name are.
#[derive(Debug, Clone)]
pub(super) struct Rooms {
    /// The claims in order of arrival.
    pub(super) line: String,
    /// One node per permit that is held, in a layout that counts them apart from the line. Only the first of the line
    /// makes nodes there, and leaves the line once it holds.
    pub(super) permits: Option<String>,
}

/// The part that a node plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Mutex,
    Read,
    Write,
    Permit,
    /// A lock of another program that would not exclude ours.
    Foreign,
    /// Not a claim, but a room of another kind of lock.
    Room,
}

/// One node of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Its place in the server's order.
    pub(super) order: i64,
    /// Its claim, if the name or the data of the node tells.
    pub(super) claim: Option<ClaimId>,
    /// How many permits it stands for; 1 for every other kind.
    pub(super) weight: u32,
}

/// A node and what is stored of it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) node: Node,
    pub(super) data: Vec<u8>,
    /// The server's number of the change that made it.
    pub(super) number: i64,
    pub(super) since: SystemTime,
}

/// Resolves once: when what is watched changes, or the session is over.
pub(super) type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A room at one moment, and its next change. A room that does not exist has no watch.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) nodes: Vec<Node>,
    pub(super) watch: Option<Watch>,
}

/// Nodes that were made, and their room.
pub(super) struct Made {
    /// None of a claim that does not wait, and would have had to.
    pub(super) names: Vec<String>,
    /// The server's number of the change that made the first one: it only grows.
    pub(super) number: i64,
    pub(super) listed: Listed,
}

/// Why a claim has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fail {
    /// The server, or the rule, refuses.
    Refused(ErrorKind, String),
    /// The session is over.
    Over(String),
}

impl Fail {
    pub(super) fn error<S: Server>(self, step: Step) -> Error {
        let (kind, what) = match self {
            Self::Refused(kind, what) => (kind, what),
            Self::Over(why) => (ErrorKind::Unavailable, why),
        };
        Error::new(kind, step, what).on(S::KIND)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Refused(error.kind(), error.message().to_owned())
    }
}
