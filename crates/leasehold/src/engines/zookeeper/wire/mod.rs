//! One ZooKeeper session and the requests the recipes need.

mod channel;
mod connection;
mod jute;
mod life;
mod multi;
mod pipe;
mod terms;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::jute::{In, Op, Out, senseless};
use self::life::Life;
use self::multi::{last_part, part, parts};
use self::pipe::{Answered, Pipe};
use self::watches::Of;
use super::config::{Access, Config};

pub(in crate::engines::zookeeper) use self::terms::{Answer, Facts, Line, Seen, Trouble, Watch};

/// What is asked together with the making of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum With {
    Nothing,
    /// Its siblings, and a watch for the next change among them.
    List,
    /// Before that, a watch on the parent's data.
    ListAndParent,
}

/// The answers; of what was asked besides, those that came.
pub(in crate::engines::zookeeper) struct Joined {
    pub(in crate::engines::zookeeper) made: Answer<(String, Facts)>,
    pub(in crate::engines::zookeeper) parent: Option<Watch>,
    pub(in crate::engines::zookeeper) listed: Option<(Vec<String>, Watch)>,
}

/// One ZooKeeper session. It is closed when nobody has it any more.
#[derive(Clone)]
pub(in crate::engines::zookeeper) struct Wire {
    pipe: Arc<Pipe>,
    access: Access,
    id: i64,
    timeout: Duration,
    _open: Arc<DropGuard>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wire(session {:#x})", self.id)
    }
}

/// How a node is made.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Flags {
    Persistent = 0,
    Ephemeral = 1,
    EphemeralSequential = 3,
    Container = 4,
}

/// How often the making of a parent is tried that others clear away meanwhile.
const TRIES: u32 = 100;

impl Wire {
    /// Opens a session with this timeout; the server may give another.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(in crate::engines::zookeeper) async fn connect(
        config: &Config,
        timeout: Duration,
    ) -> Answer<Self> {
        let pipe = Pipe::new();
        let mut life = Life::new(config, pipe.clone(), timeout);
        let connection = life.open().await?;
        let (id, timeout) = (life.id(), life.timeout());
        let closing = CancellationToken::new();
        drop(tokio::spawn(life.run(connection, closing.clone())));
        Ok(Self {
            pipe,
            access: config.access(),
            id,
            timeout,
            _open: Arc::new(closing.drop_guard()),
        })
    }

    /// The timeout the server gave.
    pub(in crate::engines::zookeeper) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The session's number, as nodes show it.
    pub(in crate::engines::zookeeper) const fn session(&self) -> i64 {
        self.id
    }

    /// Cancelled once the session has ended.
    pub(in crate::engines::zookeeper) fn over(&self) -> CancellationToken {
        self.pipe.ended.clone()
    }

    /// Follows the connection.
    pub(in crate::engines::zookeeper) fn lines(&self) -> Lines {
        Lines(self.pipe.line.subscribe())
    }

    /// Sent with this call, before it is awaited.
    fn ask(&self, request: Out) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        self.pipe.ask(request, None)
    }

    fn ask_watched(
        &self,
        op: Op,
        of: Of,
        path: &str,
    ) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        let request = Out::request(op).text(path).flag(true);
        self.pipe.ask(request, Some((of, path.to_owned())))
    }

    /// What says how a node is to be made.
    fn node(&self, request: Out, path: &str, data: &[u8], flags: Flags) -> Out {
        let (scheme, id) = match self.access {
            Access::Anyone => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        let request = request.text(path).bytes(data);
        // One line of rights: all of them.
        let request = request.int(1).int(31).text(scheme).text(id);
        request.int(flags as i32)
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        flags: Flags,
    ) -> impl Future<Output = Answer<(String, Facts)>> + Send + use<> {
        let op = match flags {
            Flags::Container => Op::CreateContainer,
            _ => Op::Create2,
        };
        let made = self.ask(self.node(Out::request(op), path, data, flags));
        async move {
            let body = made.await?.body;
            let mut body = In(&body);
            let path = body.str()?;
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            Ok((name.to_owned(), body.facts()?))
        }
    }

    /// Makes an ephemeral node with the next sequence and asks for the rest, in one round trip.
    pub(in crate::engines::zookeeper) async fn join(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        with: With,
    ) -> Joined {
        let path = [parent, "/", prefix].concat();
        // All leave with these calls, in this order, and the server keeps it.
        let made = self.create(&path, data, Flags::EphemeralSequential);
        let watched = |op, of| self.ask_watched(op, of, parent);
        let read = (with == With::ListAndParent).then(|| watched(Op::GetData, Of::Data));
        let list = (with != With::Nothing).then(|| watched(Op::GetChildren, Of::Children));
        let mut joined = Joined {
            made: made.await,
            parent: None,
            listed: None,
        };
        if let Some(read) = read {
            joined.parent = read.await.ok().and_then(|answered| answered.watch);
        }
        if let Some(list) = list {
            joined.listed = list.await.and_then(children).ok();
        }
        joined
    }

    /// Makes so many ephemeral nodes with the next sequences and lists all their siblings, in one round trip.
    pub(in crate::engines::zookeeper) async fn make_many(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        count: u32,
    ) -> Answer<(Vec<(String, Facts)>, Vec<String>, Watch)> {
        let path = format!("{parent}/{prefix}");
        let made: Vec<_> = (0..count)
            .map(|_| self.create(&path, data, Flags::EphemeralSequential))
            .collect();
        let listing = self.list_watched(parent);
        let mut nodes = Vec::new();
        let mut failed = None;
        for call in made {
            match call.await {
                Ok(node) => nodes.push(node),
                Err(trouble) => failed = Some(trouble),
            }
        }
        let listed = listing.await;
        match failed {
            None => {}
            // Past its end the sequence stands still: there would be only one again.
            Some(Trouble::Exists) => return Err(Trouble::Exists),
            Some(trouble) if nodes.is_empty() => return Err(trouble),
            // Others come in between: the parent may be made after the first call and before the last.
            Some(trouble) => {
                return Err(Trouble::Unknown(format!("only some were made: {trouble}")));
            }
        }
        let (children, watch) = listed?;
        Ok((nodes, children, watch))
    }

    /// Puts one ephemeral node in the place of another, both or neither.
    pub(in crate::engines::zookeeper) async fn swap(
        &self,
        old: &str,
        new: &str,
        data: &[u8],
    ) -> Answer<()> {
        let request = part(Out::request(Op::Multi), Op::Delete).text(old).int(-1);
        let request = part(request, Op::Create);
        let request = self.node(request, new, data, Flags::Ephemeral);
        let body = self.ask(last_part(request)).await?.body;
        parts(&mut In(&body))
    }

    /// Makes a parent and those above it; the server clears them away when they are empty.
    pub(in crate::engines::zookeeper) async fn mkdir(&self, path: &str) -> Answer<()> {
        let mut path_now = path;
        for _ in 0..TRIES {
            match self.create(path_now, &[], Flags::Container).await {
                Err(Trouble::NoNode) => {
                    path_now = path_now.rsplit_once('/').map_or("", |(above, _)| above);
                    if path_now.is_empty() {
                        return Err(Trouble::NoNode);
                    }
                }
                Ok(_) | Err(Trouble::Exists) if path_now == path => return Ok(()),
                // One more of those below it.
                Ok(_) | Err(Trouble::Exists) => {
                    let below = path[path_now.len() + 1..].find('/');
                    let end = below.map_or(path.len(), |at| path_now.len() + 1 + at);
                    path_now = &path[..end];
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::NoNode)
    }

    pub(in crate::engines::zookeeper) async fn list(&self, path: &str) -> Answer<Vec<String>> {
        let request = Out::request(Op::GetChildren).text(path).flag(false);
        let body = self.ask(request).await?.body;
        In(&body).texts()
    }

    /// Lists children, and watches for the next change among them.
    pub(in crate::engines::zookeeper) fn list_watched(
        &self,
        path: &str,
    ) -> impl Future<Output = Answer<(Vec<String>, Watch)>> + Send + use<> {
        let listing = self.ask_watched(Op::GetChildren, Of::Children, path);
        async move { children(listing.await?) }
    }

    pub(in crate::engines::zookeeper) fn read(
        &self,
        path: &str,
    ) -> impl Future<Output = Answer<(Vec<u8>, Facts)>> + Send + use<> {
        let read = self.ask(Out::request(Op::GetData).text(path).flag(false));
        async move {
            let body = read.await?.body;
            let mut body = In(&body);
            Ok((body.bytes()?.to_vec(), body.facts()?))
        }
    }

    /// Reads nodes in one round trip; none for those that are not there.
    pub(in crate::engines::zookeeper) async fn read_all(
        &self,
        paths: &[String],
    ) -> Answer<Vec<Option<(Vec<u8>, Facts)>>> {
        let calls: Vec<_> = paths.iter().map(|path| self.read(path)).collect();
        let mut all = Vec::with_capacity(calls.len());
        for call in calls {
            all.push(match call.await {
                Err(Trouble::NoNode) => None,
                read => Some(read?),
            });
        }
        Ok(all)
    }

    /// Reads a node, and watches for its deletion or change.
    pub(in crate::engines::zookeeper) async fn read_watched(
        &self,
        path: &str,
    ) -> Answer<(Vec<u8>, Watch)> {
        let Answered { body, watch } = self.ask_watched(Op::GetData, Of::Data, path).await?;
        Ok((In(&body).bytes()?.to_vec(), watched(watch)?))
    }

    pub(in crate::engines::zookeeper) async fn write(&self, path: &str, data: &[u8]) -> Answer<()> {
        let request = Out::request(Op::SetData).text(path).bytes(data).int(-1);
        self.ask(request).await.map(drop)
    }

    pub(in crate::engines::zookeeper) async fn delete(&self, path: &str) -> Answer<()> {
        let request = Out::request(Op::Delete).text(path).int(-1);
        self.ask(request).await.map(drop)
    }

    /// Makes a node that stays, or overwrites it.
    pub(in crate::engines::zookeeper) async fn put(&self, path: &str, data: &[u8]) -> Answer<()> {
        match self.create(path, data, Flags::Persistent).await {
            Ok(_) => Ok(()),
            Err(Trouble::Exists) => self.write(path, data).await,
            Err(trouble) => Err(trouble),
        }
    }

    /// Lets our server catch up with the leader.
    pub(in crate::engines::zookeeper) async fn sync(&self, path: &str) -> Answer<()> {
        self.ask(Out::request(Op::Sync).text(path)).await.map(drop)
    }

    /// A write that changes nothing. A majority has agreed to it after it was sent, so no other leader can have ended
    /// the session by then: a `sync` does not prove that, a leader that was cut off answers it. What was decided before
    /// is seen here now.
    pub(in crate::engines::zookeeper) async fn prove(&self) -> Answer<()> {
        let request = part(Out::request(Op::Multi), Op::Check).text("/").int(-1);
        // A refusal of the check is agreed to as well.
        self.ask(last_part(request)).await.map(drop)
    }
}

fn children(answered: Answered) -> Answer<(Vec<String>, Watch)> {
    Ok((In(&answered.body).texts()?, watched(answered.watch)?))
}

fn watched(watch: Option<Watch>) -> Answer<Watch> {
    watch.ok_or_else(senseless)
}

/// The ups and downs of one session's connection.
pub(in crate::engines::zookeeper) struct Lines(watch::Receiver<Line>);

impl Lines {
    pub(in crate::engines::zookeeper) fn now(&self) -> Line {
        *self.0.borrow()
    }

    pub(in crate::engines::zookeeper) async fn next(&mut self) -> Line {
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            Err(_) => Line::Over,
        }
    }
}
