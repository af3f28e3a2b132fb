//! A client of etcd: one connection at a time, to one member, and another one when it is lost.

mod codec;
mod connection;
mod error;
pub(super) mod proto;
mod quiet;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::connection::Connection;
pub(super) use self::error::{Answer, Trouble};
use self::proto::{
    Lease, LeaseGrant, LeaseId, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreate,
};
use self::watches::Watches;
use super::config::Config;

/// One client. The last copy that is dropped ends it.
#[derive(Clone)]
pub(super) struct Client {
    line: watch::Receiver<Line>,
    watches: Arc<Watches>,
    /// Cancelled once this client is of no use.
    ended: CancellationToken,
    _open: Arc<DropGuard>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// The connection there is.
#[derive(Debug, Clone)]
enum Line {
    Up(Arc<Connection>),
    Down,
}

/// How long an answer may take, for leases like this: short enough to ask another member before the lease is over, and not
/// so short that a busy machine loses the connection of all of its locks.
fn patience(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_secs(3), Duration::from_secs(5))
}

impl Client {
    /// Connects to the first member that answers. `on_down` is told when the connection is lost.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn connect(
        config: &Config,
        lease: Duration,
        on_down: impl Fn() + Send + Sync + 'static,
    ) -> Answer<Self> {
        let watches = Arc::new(Watches::default());
        let mut supervisor = Supervisor {
            config: config.clone(),
            patience: patience(lease),
            next: rand::random_range(0..config.hosts.len()),
            watches: watches.clone(),
        };
        let first = supervisor.first().await?;
        let (tell, line) = watch::channel(Line::Down);
        let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
        let end = End(watches.clone(), ended.clone());
        let running = supervisor.run(first, tell, on_down, closing.clone());
        drop(tokio::spawn(async move {
            // Also when its runtime ends.
            let _end = end;
            running.await;
        }));
        let _open = Arc::new(closing.drop_guard());
        Ok(Self {
            line,
            watches,
            ended,
            _open,
        })
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// The connection, once there is one.
    pub(super) async fn up(&self) -> Answer<Arc<Connection>> {
        let mut line = self.line.clone();
        let up = async {
            let up = line.wait_for(|line| matches!(line, Line::Up(_))).await;
            match up.as_deref() {
                Ok(Line::Up(connection)) => Some(connection.clone()),
                _ => None,
            }
        };
        tokio::select! {
            () = self.ended.cancelled() => Err(over()),
            up = up => up.ok_or_else(over),
        }
    }

    /// Waits for a connection to a member that answers.
    pub(super) async fn heard(&self) -> Answer<()> {
        while !self.up().await?.is_heard().await {
            // The next connection is on its way.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Repeats a request until its outcome is certain. Only for requests that may be done twice.
    pub(super) async fn again<T, F>(
        &self,
        over: &CancellationToken,
        mut ask: impl FnMut() -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        let mut pause = Duration::from_millis(5);
        loop {
            match ask().await {
                Err(Trouble::Unknown(why) | Trouble::Busy(why)) => {
                    tracing::debug!(why, "asking again");
                    if over.is_cancelled() {
                        return Err(Trouble::Dead(why));
                    }
                }
                answer => return answer,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = over.cancelled() => {}
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Answer<RangeResponse> {
        self.up().await?.range(request).await
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Answer<TxnResponse> {
        self.up().await?.txn(request).await
    }

    pub(super) async fn grant(&self, ttl: i64) -> Answer<Lease> {
        let path = "/etcdserverpb.Lease/LeaseGrant";
        self.up().await?.ask(path, LeaseGrant { ttl }).await
    }

    pub(super) async fn revoke(&self, id: i64) -> Answer<()> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let revoked: Answer<proto::Done> = self.up().await?.ask(path, LeaseId { id }).await;
        revoked.map(drop)
    }

    /// A change of keys after a revision; asked for after `delay`.
    pub(super) fn watch(
        &self,
        owner: i64,
        create: WatchCreate,
        delay: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        watches::wait(self.watches.clone(), owner, create, delay)
    }

    /// The watches of a lease's claims.
    pub(super) fn watches_of(&self, owner: i64) -> Vec<WatchCreate> {
        self.watches.of(owner)
    }

    /// Resolves a watch whose event is on its way.
    pub(super) fn overtake(&self, watch: &WatchCreate) {
        self.watches.overtake(watch.watch_id);
    }
}

fn over() -> Trouble {
    Trouble::Dead("the client is closed".to_owned())
}

/// Ends the client with its supervisor.
struct End(Arc<Watches>, CancellationToken);

impl Drop for End {
    fn drop(&mut self) {
        self.1.cancel();
        self.0.end();
    }
}

/// Keeps a connection.
struct Supervisor {
    config: Config,
    patience: Duration,
    /// The member to try next.
    next: usize,
    watches: Arc<Watches>,
}

impl Supervisor {
    /// The first connection: every member is tried once.
    async fn first(&mut self) -> Answer<Connection> {
        let mut why = Vec::new();
        for _ in 0..self.config.hosts.len() {
            let host = self.config.hosts[self.next % self.config.hosts.len()].clone();
            match self.open().await {
                Err(Trouble::Unknown(trouble) | Trouble::Busy(trouble)) => {
                    why.push(format!("{host}: {trouble}"));
                }
                answer => return answer,
            }
        }
        Err(Trouble::Refused(format!(
            "no member can be used ({}): name the client ports, 2379 unless told otherwise, of members of etcd 3.4 or later",
            why.join("; ")
        )))
    }

    async fn open(&mut self) -> Answer<Connection> {
        let hosts = &self.config.hosts;
        let host = hosts[self.next % hosts.len()].clone();
        self.next = self.next.wrapping_add(1);
        let watches = self.watches.clone();
        let told = move |answer| watches.told(&answer);
        let opened = Connection::open(&self.config, &host, self.patience, told).await;
        match &opened {
            Ok(_) => tracing::debug!(%host, "connected"),
            Err(trouble) => tracing::debug!(%host, %trouble, "not connected"),
        }
        opened
    }

    async fn run(
        mut self,
        first: Connection,
        tell: watch::Sender<Line>,
        on_down: impl Fn() + Send + Sync,
        closing: CancellationToken,
    ) {
        let mut connection = first;
        loop {
            let (lost, stream) = (connection.lost.clone(), connection.watching.clone());
            self.watches.over(stream);
            let _ = tell.send_replace(Line::Up(Arc::new(connection)));
            tokio::select! {
                () = lost.cancelled() => {}
                () = closing.cancelled() => return,
            }
            let _ = tell.send_replace(Line::Down);
            on_down();
            connection = tokio::select! {
                opened = self.reopen() => opened,
                () = closing.cancelled() => return,
            };
        }
    }

    /// Tries one member after the other, slower and slower.
    async fn reopen(&mut self) -> Connection {
        let mut pause = Duration::from_millis(10);
        loop {
            if let Ok(connection) = self.open().await {
                return connection;
            }
            // Not all clients of a cluster come back at one moment.
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}
