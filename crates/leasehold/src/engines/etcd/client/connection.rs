//! One connection to one member: its requests, its stream of keepalives and its stream of watches.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tower_service::Service;

use super::codec::Small;
use super::error::{Answer, CUT, Trouble};
use super::proto::{
    Authenticate, Lease, LeaseId, RangeRequest, RangeResponse, Token, TxnRequest, TxnResponse,
    WatchRequest, WatchResponse,
};
use super::quiet::Traffic;
use crate::engine::Host;
use crate::engines::etcd::config::Config;
use crate::sync::Shared;

/// The longest answer that is taken.
const LARGEST: usize = 16 * 1024 * 1024;

/// The window for what the server sends: watch events of many locks come in small frames.
const WINDOW: u32 = 8 * 1024 * 1024;

/// How often a connection with nothing to say is tried. A member ends one that pings more often than every 5 s
/// (`--grpc-keepalive-min-time`); requests have a patience of their own.
const PING: Duration = Duration::from_secs(6);

/// HTTP/2 to one member.
#[derive(Clone)]
struct Pipe(SendRequest<Body>);

impl Service<Request<Body>> for Pipe {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The answers to keepalives that are awaited, in the order of the requests: the server keeps it.
type Beats = Shared<VecDeque<(i64, oneshot::Sender<Lease>)>>;

pub(in crate::engines::etcd) struct Connection {
    grpc: Grpc<Pipe>,
    token: Option<AsciiMetadataValue>,
    /// Whether the cluster took no logins when ours was shown.
    open_to_all: bool,
    /// How long an answer may take.
    patience: Duration,
    beating: mpsc::UnboundedSender<LeaseId>,
    beats: Arc<Beats>,
    traffic: Arc<Traffic>,
    pub(super) watching: mpsc::UnboundedSender<WatchRequest>,
    /// The term of the cluster in the last answer that a majority stood behind.
    pub(in crate::engines::etcd) term: AtomicU64,
    /// Cancelled once the connection is of no use.
    pub(super) lost: CancellationToken,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects to a member, logs in, and makes sure that a majority stands behind it. What the watches tell goes to
    /// `told`.
    pub(super) async fn open(
        config: &Config,
        host: &Host,
        patience: Duration,
        told: impl Fn(WatchResponse) + Send + 'static,
    ) -> Answer<Self> {
        let lost = CancellationToken::new();
        let pipe = dial(config, host, patience, lost.clone());
        let pipe = tokio::time::timeout(patience, pipe).await;
        let pipe = pipe.map_err(|_| Trouble::Unknown("no answer to the greeting".to_owned()))??;
        let grpc =
            Grpc::with_origin(pipe, origin(config, host)?).max_decoding_message_size(LARGEST);
        let (beating, to_beat) = mpsc::unbounded_channel();
        let (watching, to_watch) = mpsc::unbounded_channel();
        let mut connection = Self {
            grpc,
            token: None,
            open_to_all: false,
            patience,
            beating,
            beats: Arc::default(),
            traffic: Arc::default(),
            watching,
            term: AtomicU64::new(0),
            lost,
        };
        connection.log_in(config).await?;
        let key = config.key("%sessions");
        let keys_only = true;
        let probe = RangeRequest {
            key,
            keys_only,
            ..RangeRequest::default()
        };
        let there = connection.range(probe).await?;
        let term = there.header.map_or(0, |header| header.raft_term);
        connection.term.store(term, Ordering::Release);
        let beats = connection.beats.clone();
        let answered = move |lease: Lease| {
            let mut beats = beats.lock();
            let at = beats.iter().position(|(id, _)| *id == lease.id);
            if let Some((_, tell)) = at.and_then(|at| beats.remove(at)) {
                let _ = tell.send(lease);
            }
        };
        connection.stream("/etcdserverpb.Lease/LeaseKeepAlive", to_beat, answered);
        connection.stream("/etcdserverpb.Watch/Watch", to_watch, told);
        Ok(connection)
    }

    async fn log_in(&mut self, config: &Config) -> Answer<()> {
        let Some((name, password)) = config.login() else {
            return Ok(());
        };
        let login = Authenticate {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let token: Answer<Token> = self.ask("/etcdserverpb.Auth/Authenticate", login).await;
        match token {
            // A cluster without logins lets every client in.
            Err(Trouble::Refused(why)) if why.contains("authentication is not enabled") => {
                self.open_to_all = true;
            }
            token => {
                let token = token?.token.parse().ok();
                let token: AsciiMetadataValue =
                    token.ok_or_else(|| Trouble::Refused("the token is no text".to_owned()))?;
                self.token = Some(token);
            }
        }
        Ok(())
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            let _ = request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Answer<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (mut grpc, request) = (self.grpc.clone(), self.request(message));
        let path = PathAndQuery::from_static(path);
        let under_way = self.traffic.begin();
        let asked = grpc.unary(request, path, Small::default());
        let answer = self.within_patience(asked).await?;
        under_way.answered();
        let answer = answer.map(tonic::Response::into_inner);
        let answer = answer.map_err(|status| match Trouble::from(status) {
            // Logins were switched on after this connection was made: the next one logs in.
            Trouble::Denied(why) if self.open_to_all => Trouble::Unknown(why),
            trouble => trouble,
        });
        if let Err(Trouble::Unknown(why)) = &answer {
            self.give_up(why);
        }
        answer
    }

    /// Waits while the member is quiet; false once the connection is lost.
    pub(super) async fn is_heard(&self) -> bool {
        tokio::select! {
            () = self.traffic.heard() => !self.lost.is_cancelled(),
            () = self.lost.cancelled() => false,
        }
    }

    async fn within_patience<T: Send>(&self, asked: impl Future<Output = T> + Send) -> Answer<T> {
        tokio::select! {
            answer = asked => Ok(answer),
            () = self.lost.cancelled() => Err(Trouble::Unknown(CUT.to_owned())),
            () = tokio::time::sleep(self.patience) => {
                self.give_up("no answer");
                Err(Trouble::Unknown(format!("no answer within {:?}", self.patience)))
            }
        }
    }

    fn give_up(&self, why: &str) {
        if !self.lost.is_cancelled() {
            tracing::debug!(why, "the connection is given up");
            self.lost.cancel();
        }
    }

    pub(in crate::engines::etcd) async fn range(
        &self,
        request: RangeRequest,
    ) -> Answer<RangeResponse> {
        self.ask("/etcdserverpb.KV/Range", request).await
    }

    pub(in crate::engines::etcd) async fn txn(&self, request: TxnRequest) -> Answer<TxnResponse> {
        self.ask("/etcdserverpb.KV/Txn", request).await
    }

    /// Keeps a lease alive; its time to live is 0 if it does not exist.
    pub(in crate::engines::etcd) async fn beat(&self, id: i64) -> Answer<Lease> {
        let (tell, told) = oneshot::channel();
        {
            let mut beats = self.beats.lock();
            beats.push_back((id, tell));
            let _ = self.beating.send(LeaseId { id });
        }
        let answer = self.within_patience(told).await?;
        answer.map_err(|_| Trouble::Unknown(CUT.to_owned()))
    }

    /// Begins a stream of requests and answers. A member without a leader ends it, and so the connection.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: mpsc::UnboundedReceiver<Q>,
        told: impl Fn(A) + Send + 'static,
    ) where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = self.request(UnboundedReceiverStream::new(requests));
        let leader = AsciiMetadataValue::from_static("true");
        let _ = request.metadata_mut().insert("hasleader", leader);
        let (mut grpc, lost) = (self.grpc.clone(), self.lost.clone());
        let reading = async move {
            let path = PathAndQuery::from_static(path);
            let opened = grpc.streaming(request, path, Small::default()).await?;
            let mut answers: Streaming<A> = opened.into_inner();
            while let Some(answer) = answers.message().await? {
                told(answer);
            }
            Ok::<_, tonic::Status>(())
        };
        drop(tokio::spawn(async move {
            let guard = lost.clone().drop_guard();
            tokio::select! {
                ended = reading => {
                    tracing::debug!(path, ?ended, "a stream has ended");
                }
                () = lost.cancelled() => {}
            }
            drop(guard);
        }));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.lost.cancel();
    }
}

fn origin(config: &Config, host: &Host) -> Answer<Uri> {
    let scheme = if config.tls().is_some() {
        "https"
    } else {
        "http"
    };
    let origin = format!("{scheme}://{host}").parse();
    origin.map_err(|_| Trouble::Refused(format!("{host} is no host")))
}

async fn dial(
    config: &Config,
    host: &Host,
    patience: Duration,
    lost: CancellationToken,
) -> Answer<Pipe> {
    let broken = |error: io::Error| Trouble::Unknown(error.to_string());
    let tcp = TcpStream::connect((&*host.name, host.port)).await;
    let tcp = tcp.map_err(broken)?;
    tcp.set_nodelay(true).map_err(broken)?;
    match config.tls() {
        None => greet(tcp, patience, lost).await,
        Some(tls) => {
            let secured = tls.connect(&host.name, tcp).await.map_err(broken)?;
            greet(secured, patience, lost).await
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
async fn greet(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    patience: Duration,
    lost: CancellationToken,
) -> Answer<Pipe> {
    let mut builder = Builder::new(TokioExecutor::new());
    let _ = builder
        .timer(TokioTimer::new())
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(patience / 2)
        .keep_alive_while_idle(true);
    let greeted = builder.handshake(TokioIo::new(stream)).await;
    let (pipe, connection) = greeted.map_err(|error| Trouble::Unknown(error.to_string()))?;
    drop(tokio::spawn(async move {
        let guard = lost.clone().drop_guard();
        tokio::select! {
            ended = connection => {
                tracing::debug!(?ended, "the connection has ended");
            }
            () = lost.cancelled() => {}
        }
        drop(guard);
    }));
    Ok(Pipe(pipe))
}
