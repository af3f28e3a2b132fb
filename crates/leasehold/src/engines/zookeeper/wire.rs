//! The only file that names the client crate: one ZooKeeper session and the requests the recipes need.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{
    Acls, Client, CreateMode, CreateSequence, Error as ZkError, EventType, MultiWriteError,
    OneshotWatcher, SessionState, Stat, StateWatcher,
};

use super::at_once::send_at_once;
use super::config::{Access, Config};

/// Why a request did not do what it was meant to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The node, or the parent of a node to create, is not there.
    NoNode,
    /// A node of that name is there.
    Exists,
    /// The server does not let us.
    Denied(String),
    /// The server said no, for another reason.
    Refused(String),
    /// It may or may not have happened.
    Unknown(String),
    /// The session is over.
    Dead(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoNode => f.write_str("the node is not there"),
            Self::Exists => f.write_str("the node is there already"),
            Self::Denied(why) | Self::Refused(why) | Self::Unknown(why) | Self::Dead(why) => {
                f.write_str(why)
            }
        }
    }
}

impl From<ZkError> for Trouble {
    // Whatever is not a definite answer of the server leaves the outcome unknown: a request on a dead link fails
    // in more ways than one.
    fn from(error: ZkError) -> Self {
        let why = error.to_string();
        match error {
            ZkError::NoNode => Self::NoNode,
            ZkError::NodeExists => Self::Exists,
            ZkError::NoAuth | ZkError::AuthFailed => Self::Denied(why),
            ZkError::SessionExpired | ZkError::ClientClosed | ZkError::NoHosts => Self::Dead(why),
            ZkError::BadArguments(_)
            | ZkError::BadVersion
            | ZkError::NoChildrenForEphemerals
            | ZkError::NotEmpty
            | ZkError::InvalidAcl
            | ZkError::NotReadOnly
            | ZkError::QuotaExceeded
            | ZkError::MarshallingError
            | ZkError::Unimplemented => Self::Refused(why),
            _ => Self::Unknown(why),
        }
    }
}

pub(super) type Answer<T> = Result<T, Trouble>;

/// What a watch saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The watched node was deleted.
    Deleted,
    /// Something else happened; look again.
    Changed,
}

/// Resolves once, when the watched thing changes or the session ends.
pub(super) type Watch = Pin<Box<dyn Future<Output = Seen> + Send + Sync>>;

/// What is asked together with the making of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    Nothing,
    /// Its siblings, and a watch for the next change among them.
    List,
    /// Before that, a watch on the parent's data.
    ListAndParent,
}

/// The answers; of what was asked besides, those that came.
pub(super) struct Joined {
    pub(super) made: Answer<(String, Facts)>,
    pub(super) parent: Option<Watch>,
    pub(super) listed: Option<(Vec<String>, Watch)>,
}

/// What is known of a node besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// The number of the change that made it; only grows.
    pub(super) czxid: i64,
    /// When it was made, in milliseconds of the server's wall clock.
    pub(super) ctime: i64,
    /// The session it belongs to.
    pub(super) owner: i64,
}

impl From<&Stat> for Facts {
    fn from(stat: &Stat) -> Self {
        Self {
            czxid: stat.czxid,
            ctime: stat.ctime,
            owner: stat.ephemeral_owner,
        }
    }
}

/// What the session's connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Up,
    Down,
    Over,
}

/// One ZooKeeper session.
#[derive(Clone)]
pub(super) struct Wire {
    client: Client,
    access: Access,
    ports: Arc<[u16]>,
}

impl std::fmt::Debug for Wire {
    // Whoever knows a session's password can take the session over.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wire(session {:#x})", self.session())
    }
}

impl Wire {
    /// Opens a session with this timeout; the server may give another.
    pub(super) async fn connect(config: &Config, timeout: Duration) -> Answer<Self> {
        let mut connector = Client::connector().with_session_timeout(timeout);
        if let Some((scheme, secret)) = config.auth() {
            connector = connector.with_auth(scheme, secret.as_bytes());
        }
        let client = connector.connect(&config.hosts()).await?;
        let (access, ports) = (config.access(), config.ports());
        send_at_once(&ports);
        let ports = ports.into();
        Ok(Self {
            client,
            access,
            ports,
        })
    }

    /// The timeout the server gave.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// The session's number, as nodes show it.
    pub(super) fn session(&self) -> i64 {
        self.client.session_id().0
    }

    /// Follows the connection.
    pub(super) fn lines(&self) -> Lines {
        Lines {
            states: self.client.state_watcher(),
            ports: self.ports.clone(),
        }
    }

    fn acls(&self) -> Acls<'static> {
        match self.access {
            Access::Anyone => Acls::anyone_all(),
            Access::Creator => Acls::creator_all(),
        }
    }

    /// Makes an ephemeral node with the next sequence and asks for the rest, in one round trip.
    pub(super) async fn join(&self, parent: &str, prefix: &str, data: &[u8], with: With) -> Joined {
        let path = format!("{parent}/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        // All leave with these calls, in this order, and the server keeps it.
        let made = self.client.create(&path, data, &options);
        let read = (with == With::ListAndParent).then(|| self.client.get_and_watch_data(parent));
        let list = (with != With::Nothing).then(|| self.client.list_and_watch_children(parent));
        let named = |(stat, sequence): (Stat, CreateSequence)| {
            (format!("{prefix}{sequence}"), Facts::from(&stat))
        };
        let mut joined = Joined {
            made: made.await.map(named).map_err(Trouble::from),
            parent: None,
            listed: None,
        };
        if let Some(read) = read {
            joined.parent = read.await.ok().map(|(_, _, watcher)| watch(watcher));
        }
        if let Some(list) = list {
            let listed = list.await.ok();
            joined.listed = listed.map(|(children, watcher)| (children, watch(watcher)));
        }
        joined
    }

    /// Makes so many ephemeral nodes with the next sequences and lists all their siblings, in one round trip.
    pub(super) async fn make_many(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        count: u32,
    ) -> Answer<(Vec<(String, Facts)>, Vec<String>, Watch)> {
        let path = format!("{parent}/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let made: Vec<_> = (0..count)
            .map(|_| self.client.create(&path, data, &options))
            .collect();
        let listing = self.client.list_and_watch_children(parent);
        let mut nodes = Vec::new();
        let mut failed = None;
        for call in made {
            match call.await {
                Ok((stat, sequence)) => {
                    nodes.push((format!("{prefix}{sequence}"), Facts::from(&stat)));
                }
                Err(error) => failed = Some(error),
            }
        }
        let listed = listing.await;
        match failed {
            None => {}
            // Past its end the sequence stands still: there would be only one again.
            Some(ZkError::NodeExists) => return Err(Trouble::Exists),
            Some(error) if nodes.is_empty() => return Err(error.into()),
            // Others come in between: the parent may be made after the first call and before the last.
            Some(error) => return Err(Trouble::Unknown(format!("only some were made: {error}"))),
        }
        let (children, watcher) = listed?;
        Ok((nodes, children, watch(watcher)))
    }

    /// Puts one ephemeral node in the place of another, both or neither.
    pub(super) async fn swap(&self, old: &str, new: &str, data: &[u8]) -> Answer<()> {
        let options = CreateMode::Ephemeral.with_acls(self.acls());
        let mut both = self.client.new_multi_writer();
        both.add_delete(old, None)?;
        both.add_create(new, data, &options)?;
        match both.commit().await {
            Ok(_) => Ok(()),
            Err(MultiWriteError::OperationFailed { source, .. }) => Err(source.into()),
            Err(MultiWriteError::RequestFailed { source }) => Err(source.into()),
        }
    }

    /// Makes a parent and those above it; the server clears them away when they are empty.
    pub(super) async fn mkdir(&self, path: &str) -> Answer<()> {
        let options = CreateMode::Container.with_acls(self.acls());
        Ok(self.client.mkdir(path, &options).await?)
    }

    pub(super) async fn list(&self, path: &str) -> Answer<Vec<String>> {
        Ok(self.client.list_children(path).await?)
    }

    /// Lists children, and watches for the next change among them.
    pub(super) fn list_watched(
        &self,
        path: &str,
    ) -> impl Future<Output = Answer<(Vec<String>, Watch)>> + Send {
        let listing = self.client.list_and_watch_children(path);
        async move {
            let (children, watcher) = listing.await?;
            Ok((children, watch(watcher)))
        }
    }

    pub(super) async fn read(&self, path: &str) -> Answer<(Vec<u8>, Facts)> {
        let (data, stat) = self.client.get_data(path).await?;
        Ok((data, Facts::from(&stat)))
    }

    /// Reads nodes in one round trip; none for those that are not there.
    pub(super) async fn read_all(&self, paths: &[String]) -> Answer<Vec<Option<(Vec<u8>, Facts)>>> {
        let calls: Vec<_> = paths
            .iter()
            .map(|path| self.client.get_data(path))
            .collect();
        let mut all = Vec::with_capacity(calls.len());
        for call in calls {
            all.push(match call.await {
                Ok((data, stat)) => Some((data, Facts::from(&stat))),
                Err(ZkError::NoNode) => None,
                Err(error) => return Err(error.into()),
            });
        }
        Ok(all)
    }

    /// Reads a node, and watches for its deletion or change.
    pub(super) async fn read_watched(&self, path: &str) -> Answer<(Vec<u8>, Watch)> {
        let (data, _, watcher) = self.client.get_and_watch_data(path).await?;
        Ok((data, watch(watcher)))
    }

    pub(super) async fn write(&self, path: &str, data: &[u8]) -> Answer<()> {
        let _ = self.client.set_data(path, data, None).await?;
        Ok(())
    }

    pub(super) async fn delete(&self, path: &str) -> Answer<()> {
        Ok(self.client.delete(path, None).await?)
    }

    /// Makes a node that stays, or overwrites it.
    pub(super) async fn put(&self, path: &str, data: &[u8]) -> Answer<()> {
        let options = CreateMode::Persistent.with_acls(self.acls());
        match self.client.create(path, data, &options).await {
            Ok(_) => Ok(()),
            Err(ZkError::NodeExists) => self.write(path, data).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Lets our server catch up with the leader.
    pub(super) async fn sync(&self, path: &str) -> Answer<()> {
        Ok(self.client.sync(path).await?)
    }

    /// A write that changes nothing. A majority has agreed to it after it was sent, so no other leader can have ended
    /// the session by then: a `sync` does not prove that, a leader that was cut off answers it. What was decided before
    /// is seen here now.
    pub(super) async fn prove(&self) -> Answer<()> {
        let mut nothing = self.client.new_multi_writer();
        nothing.add_check_version("/", -1)?;
        match nothing.commit().await {
            // A refusal is agreed to as well.
            Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(()),
            Err(MultiWriteError::RequestFailed { source }) => Err(source.into()),
        }
    }
}

fn watch(watcher: OneshotWatcher) -> Watch {
    Box::pin(async move {
        match watcher.changed().await.event_type {
            EventType::NodeDeleted => Seen::Deleted,
            _ => Seen::Changed,
        }
    })
}

/// The ups and downs of one session's connection.
pub(super) struct Lines {
    states: StateWatcher,
    ports: Arc<[u16]>,
}

impl Lines {
    pub(super) fn now(&self) -> Line {
        line(self.states.peek_state())
    }

    pub(super) async fn next(&mut self) -> Line {
        let line = line(self.states.changed().await);
        if line == Line::Up {
            // It is another connection.
            send_at_once(&self.ports);
        }
        line
    }
}

fn line(state: SessionState) -> Line {
    match state {
        SessionState::SyncConnected => Line::Up,
        SessionState::Disconnected | SessionState::ConnectedReadOnly => Line::Down,
        SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => Line::Over,
    }
}
