//! HTTP to Consul: requests over a few kept connections, and whether the agent is heard.

mod connection;
pub(super) mod kv;
pub(super) mod trouble;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use tokio::sync::{Semaphore, watch};

use self::connection::{Sender, connect};
use self::trouble::{Answer, Trouble, refusal};
use super::config::Config;
use crate::clock::micros;
use crate::engine::Clock;
use crate::sync::Shared;

/// How many requests are under way at a time, besides those that wait for a change. An agent takes 200 connections of
/// one address unless it is told otherwise, and a machine has several processes.
const AT_ONCE: usize = 24;

/// How long an answer may take that does not wait for anything. An agent that looks for a leader takes up to 7 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// With requests under way and no answer for so long, the agent is not heard: a caller that gives up before its request does
/// leaves no more of them behind, for the agent to do once it is back.
const QUIET: Duration = Duration::from_millis(300);

/// For how long requests are held back while the agent is not heard.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the server lets a request wait for a change; it adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(10);

/// The longest answer that is taken.
const LONGEST: usize = 64 << 20;

/// What the agent answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Bytes,
    /// The server's number of the state that was read; 0 if it says none.
    pub(super) index: u64,
    /// Whether what was asked for exists.
    pub(super) found: bool,
}

/// A request.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Below `/v1/`, with its options.
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// Answer when the state has a larger number than this, or after [`WAIT`].
    pub(super) after: Option<u64>,
    /// Whether it is sent though the agent was not heard last time.
    pub(super) probes: bool,
}

impl Ask {
    pub(super) fn get(path: String) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    pub(super) fn put(path: &str, body: Vec<u8>) -> Self {
        Self {
            method: Method::PUT,
            path: path.to_owned(),
            body,
            ..Self::default()
        }
    }
}

/// A client of one deployment's agents.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) config: Config,
    idle: Shared<Vec<Sender>>,
    room: Semaphore,
    /// Which host is used.
    host: AtomicUsize,
    /// Whether the agent was heard last time.
    heard: watch::Sender<bool>,
    /// When the first request was sent after the last answer; 0 for none.
    unanswered: AtomicU64,
}

/// A request under way. Dropped without an answer, it may be the agent that is silent.
struct UnderWay<'a>(&'a Http);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let since = self.0.unanswered.load(Ordering::Acquire);
        if since > 0 && Clock::boot().now() > since + micros(QUIET) {
            self.0.is_heard(false);
        }
    }
}

impl Http {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            idle: Shared::default(),
            room: Semaphore::new(AT_ONCE),
            host: AtomicUsize::new(0),
            heard: watch::Sender::new(true),
            unanswered: AtomicU64::new(0),
        }
    }

    /// Whether the agent was heard last time, and the next changes of that.
    pub(super) fn heard(&self) -> watch::Receiver<bool> {
        self.heard.subscribe()
    }

    fn is_heard(&self, heard: bool) {
        let _ = self
            .heard
            .send_if_modified(|was| std::mem::replace(was, heard) != heard);
    }

    /// Begins a request that does not wait for a change.
    fn begin(&self) -> UnderWay<'_> {
        let (none, now) = (0, Clock::boot().now());
        let order = Ordering::AcqRel;
        let _ = self
            .unanswered
            .compare_exchange(none, now, order, Ordering::Acquire);
        UnderWay(self)
    }

    /// Sends a request once, when the agent is heard. A caller may drop this at any time: then the request may have
    /// happened.
    pub(super) async fn send(&self, ask: &Ask) -> Answer<Reply> {
        if !ask.probes {
            // Requests that were under way when the agent fell silent are enough: the others stay here. Not for ever:
            // without a session there is no other request that finds out.
            let mut heard = self.heard();
            let heard = heard.wait_for(|heard| *heard);
            let _ = tokio::time::timeout(SILENCE, heard).await;
        }
        let _room = match ask.probes || ask.after.is_some() {
            true => None,
            false => self.room.acquire().await.ok(),
        };
        let patience = match ask.after {
            Some(_) => WAIT * 17 / 16 + PATIENCE / 2,
            None if ask.probes => PATIENCE / 5,
            None => PATIENCE,
        };
        let _under_way = ask.after.is_none().then(|| self.begin());
        // In a box: requests that are held back are small, however many there are.
        let answered = tokio::time::timeout(patience, Box::pin(self.exchange(ask))).await;
        let answered = answered.unwrap_or_else(|_| {
            let what = format!("Consul has not answered for {patience:?}");
            Err(Lost::Unknown(what))
        });
        let heard = answered.is_ok();
        if !heard {
            let _ = self.host.fetch_add(1, Ordering::Relaxed);
            self.idle.lock().clear();
        }
        if heard {
            self.unanswered.store(0, Ordering::Release);
        }
        self.is_heard(heard);
        match answered {
            Ok((response, body)) => self.meaning(ask, &response, body),
            Err(Lost::Before(why)) => Err(Trouble::Later(why)),
            Err(Lost::Unknown(why)) => Err(Trouble::Unknown(why)),
        }
    }

    async fn exchange(&self, ask: &Ask) -> Result<(Response<()>, Bytes), Lost> {
        let (mut sender, response) = loop {
            let (mut sender, kept) = self.sender().await?;
            match sender.try_send_request(self.request(ask)?).await {
                Ok(response) => break (sender, response),
                // The agent had closed it, and has not seen the request: another connection does it.
                Err(error) if error.message().is_some() && kept => {}
                Err(error) => {
                    let before = error.message().is_some();
                    let hint = match error.error().is_parse() {
                        true => ": is this the HTTP port of Consul?",
                        false => "",
                    };
                    let why = format!("the connection to Consul was lost: {}{hint}", error.error());
                    return Err(if before {
                        Lost::Before(why)
                    } else {
                        Lost::Unknown(why)
                    });
                }
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| Lost::Unknown(format!("half an answer: {error}")))?;
        if sender.ready().await.is_ok() {
            self.idle.lock().push(sender);
        }
        Ok((Response::from_parts(head, ()), body.to_bytes()))
    }

    /// A connection, and whether it was kept from earlier requests.
    async fn sender(&self) -> Result<(Sender, bool), Lost> {
        loop {
            let kept = self.idle.lock().pop();
            match kept {
                Some(sender) if sender.is_ready() => return Ok((sender, true)),
                Some(_) => {}
                None => break,
            }
        }
        let connected = connect(&self.config, self.host.load(Ordering::Relaxed)).await;
        let sender = connected.map_err(|error| {
            let place = self.config.location();
            Lost::Before(format!("Consul cannot be reached at {place}: {error}"))
        })?;
        Ok((sender, false))
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Lost> {
        let mut uri = format!("/v1/{}", ask.path);
        let mut more = |what: &str| {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str(what);
        };
        if let Some(index) = ask.after {
            more(&format!("index={index}&wait={}s", WAIT.as_secs()));
        }
        if !self.config.scope.is_empty() {
            more(&self.config.scope);
        }
        let mut request = Request::builder().method(&ask.method).uri(uri);
        request = request.header("Host", self.config.host());
        if let Some(token) = self.config.token() {
            request = request.header("X-Consul-Token", token);
        }
        let body = Full::new(Bytes::from(ask.body.clone()));
        let built = request.body(body);
        built.map_err(|error| Lost::Before(format!("no request can be made of this: {error}")))
    }

    fn meaning(&self, ask: &Ask, response: &Response<()>, body: Bytes) -> Answer<Reply> {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        match status {
            200 | 404 if header("X-Consul-KnownLeader") == Some("false") => {
                Err(Trouble::Later("Consul has no leader now".to_owned()))
            }
            200 | 404 => Ok(Reply {
                body,
                index: header("X-Consul-Index").map_or(0, |index| index.parse().unwrap_or(0)),
                found: status == 200,
            }),
            409 => Err(kv::failed(&body, &self.config.rule(&ask.path))),
            _ => {
                let rule = self.config.rule(&ask.path);
                Err(refusal(status, &String::from_utf8_lossy(&body), &rule))
            }
        }
    }
}

/// Why no answer came.
enum Lost {
    /// The agent has not seen the request.
    Before(String),
    Unknown(String),
}
