//! A client of ZooKeeper: one session, and the requests that the locks need.

mod codec;
mod connection;
mod error;
mod mux;
mod session;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use self::codec::{Encoder, Op};
use self::error::senseless;
use self::mux::{Answered, Connectivity, Mux};
use self::session::Session;
use self::watches::Of;
use super::config::{Access, Config};

pub(super) use self::codec::Stat;
#[cfg(fuzzing)]
pub(crate) use self::codec::tests as fuzzed;
pub(super) use self::error::{Answer, Trouble};
pub(super) use self::mux::Watch;

/// One session. The last copy that is dropped closes it.
#[derive(Clone)]
pub(super) struct Client {
    mux: Arc<Mux>,
    access: Access,
    id: i64,
    timeout: Duration,
    _open: Arc<DropGuard>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client(session {:#x})", self.id)
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

/// How often parents are made that the server clears away meanwhile.
const TRIES: u32 = 100;

impl Client {
    /// Opens a session with this timeout; the server may give another.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn connect(
        config: &Config,
        timeout: Duration,
        on_down: impl Fn() + Send + Sync + 'static,
    ) -> Answer<Self> {
        let mux = Mux::new();
        let mut session = Session::new(config, mux.clone(), timeout, Box::new(on_down));
        let connection = session.open().await?;
        let (id, timeout) = (session.id, session.timeout);
        let closing = CancellationToken::new();
        drop(tokio::spawn(session.run(connection, closing.clone())));
        Ok(Self {
            mux,
            access: config.access(),
            id,
            timeout,
            _open: Arc::new(closing.drop_guard()),
        })
    }

    /// The timeout that the server gave.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The session's id, as the `Stat` of its ephemeral nodes shows it.
    pub(super) const fn session(&self) -> i64 {
        self.id
    }

    /// Cancelled once the session has ended.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.mux.ended
    }

    /// Waits for a connection; an error if there will be none.
    pub(super) async fn connected(&self) -> Answer<()> {
        let mut connectivity = self.mux.connectivity.subscribe();
        let changed = connectivity
            .wait_for(|now| *now != Connectivity::Down)
            .await;
        match changed.as_deref() {
            Ok(Connectivity::Up) => Ok(()),
            _ => Err(error::dead("the session is over")),
        }
    }

    /// Waits until the session has ended, but not for long: at a silent server it ends by its timeout.
    pub(super) fn until_closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut connectivity = self.mux.connectivity.subscribe();
        async move {
            let over = connectivity.wait_for(|now| *now == Connectivity::Over);
            let _ = tokio::time::timeout(Duration::from_secs(2), over).await;
        }
    }

    /// Repeats a request until its outcome is certain. Only for requests that may be done twice.
    pub(super) async fn again<T, F>(&self, mut ask: impl FnMut() -> F) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        let mut pause = Duration::from_millis(5);
        loop {
            match ask().await {
                Err(Trouble::Unknown(why)) => {
                    tracing::debug!(why, "asking again");
                    if self.ended().is_cancelled() {
                        return Err(Trouble::Dead(why));
                    }
                }
                answer => return answer,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ended().cancelled() => {}
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    fn ask(&self, request: Encoder) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        self.mux.ask(request, None)
    }

    fn ask_watched(
        &self,
        op: Op,
        of: Of,
        path: &str,
    ) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        let request = Encoder::request(op).text(path).flag(true);
        self.mux.ask(request, Some((of, path.to_owned())))
    }

    /// Path, data, access list and flags of a node to make.
    fn node(&self, request: Encoder, path: &str, data: &[u8], flags: Flags) -> Encoder {
        let (scheme, id) = match self.access {
            Access::Anyone => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        let request = request.text(path).bytes(data);
        // One entry, with all permissions.
        let request = request.int(1).int(31).text(scheme).text(id);
        request.int(flags as i32)
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        flags: Flags,
    ) -> impl Future<Output = Answer<(String, Stat)>> + Send + use<> {
        let op = match flags {
            Flags::Container => Op::CreateContainer,
            _ => Op::Create2,
        };
        let made = self.ask(self.node(Encoder::request(op), path, data, flags));
        async move {
            let made = made.await?;
            let mut body = made.body();
            let path = body.text()?;
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            Ok((name.to_owned(), body.stat()?))
        }
    }

    /// Makes ephemeral nodes with the next sequences, and lists their siblings, in one round trip.
    pub(super) async fn make(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        count: u32,
    ) -> (Vec<Answer<(String, Stat)>>, Answer<(Vec<String>, Watch)>) {
        let path = format!("{parent}/{prefix}");
        // All are sent before the first is awaited; the server keeps their order.
        let calls: Vec<_> = (0..count)
            .map(|_| self.create(&path, data, Flags::EphemeralSequential))
            .collect();
        let listing = self.list_watched(parent);
        let mut made = Vec::with_capacity(calls.len());
        for call in calls {
            made.push(call.await);
        }
        (made, listing.await)
    }

    /// Deletes one node and makes another ephemeral one, both or neither.
    pub(super) async fn swap(&self, old: &str, new: &str, data: &[u8]) -> Answer<()> {
        let request = Encoder::request(Op::Multi).part(Op::Delete);
        let request = request.text(old).int(-1).part(Op::Create);
        let request = self.node(request, new, data, Flags::Ephemeral);
        self.ask(request.last_part()).await?.body().parts()
    }

    /// Makes a container node and those above it.
    pub(super) async fn mkdir(&self, path: &str) -> Answer<()> {
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

    pub(super) async fn list(&self, path: &str) -> Answer<Vec<String>> {
        let request = Encoder::request(Op::GetChildren).text(path).flag(false);
        self.ask(request).await?.body().texts()
    }

    /// Lists children as the leader knows them, in one round trip.
    pub(super) async fn list_synced(&self, path: &str) -> Answer<Vec<String>> {
        let synced = self.ask(Encoder::request(Op::Sync).text(path));
        let request = Encoder::request(Op::GetChildren).text(path).flag(false);
        let listed = self.ask(request);
        let _ = synced.await?;
        listed.await?.body().texts()
    }

    /// Lists children, and watches for the next change among them.
    pub(super) fn list_watched(
        &self,
        path: &str,
    ) -> impl Future<Output = Answer<(Vec<String>, Watch)>> + Send + use<> {
        let listing = self.ask_watched(Op::GetChildren, Of::Children, path);
        async move {
            let listed = listing.await?;
            let children = listed.body().texts()?;
            Ok((children, listed.watch.ok_or_else(senseless)?))
        }
    }

    pub(super) fn read(
        &self,
        path: &str,
    ) -> impl Future<Output = Answer<(Vec<u8>, Stat)>> + Send + use<> {
        let read = self.ask(Encoder::request(Op::GetData).text(path).flag(false));
        async move {
            let read = read.await?;
            let mut body = read.body();
            Ok((body.bytes()?.to_vec(), body.stat()?))
        }
    }

    /// Reads nodes in one round trip; none for those that do not exist.
    pub(super) async fn read_all(&self, paths: &[String]) -> Answer<Vec<Option<(Vec<u8>, Stat)>>> {
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
    pub(super) async fn read_watched(&self, path: &str) -> Answer<(Vec<u8>, Watch)> {
        let read = self.ask_watched(Op::GetData, Of::Data, path).await?;
        let data = read.body().bytes()?.to_vec();
        Ok((data, read.watch.ok_or_else(senseless)?))
    }

    pub(super) async fn write(&self, path: &str, data: &[u8]) -> Answer<()> {
        let request = Encoder::request(Op::SetData).text(path).bytes(data).int(-1);
        self.ask(request).await.map(drop)
    }

    pub(super) async fn delete(&self, path: &str) -> Answer<()> {
        let request = Encoder::request(Op::Delete).text(path).int(-1);
        self.ask(request).await.map(drop)
    }

    /// Makes a persistent node, or overwrites it.
    pub(super) async fn put(&self, path: &str, data: &[u8]) -> Answer<()> {
        match self.create(path, data, Flags::Persistent).await {
            Ok(_) => Ok(()),
            Err(Trouble::Exists) => self.write(path, data).await,
            Err(trouble) => Err(trouble),
        }
    }

    /// A write that changes nothing. A majority agreed to it after it was sent, so no other leader can have ended the
    /// session before. A `sync` does not prove that: a leader that is cut off answers it.
    pub(super) async fn prove(&self) -> Answer<()> {
        let request = Encoder::request(Op::Multi).part(Op::Check);
        // A refusal of the check was agreed to as well.
        let request = request.text("/").int(-1).last_part();
        self.ask(request).await.map(drop)
    }
}
