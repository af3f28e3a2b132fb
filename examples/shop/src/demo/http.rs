//! One connection that is used for one request after the other.

use std::fmt;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A client of what listens at a port of the loopback address.
#[derive(Debug)]
pub struct Client {
    port: u16,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

/// A status and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// Whether the header `Retry-After` was there.
    pub retry_after: bool,
    /// The body.
    pub body: String,
}

impl Client {
    /// Nothing is connected yet.
    pub const fn new(port: u16) -> Self {
        Self { port, sender: None }
    }

    /// Sends a request and reads the reply.
    ///
    /// # Errors
    /// In words. After one the next request takes a new connection.
    pub async fn send(&mut self, method: Method, path: &str) -> Result<Reply, String> {
        let sent = self.try_send(method, path).await;
        if sent.is_err() {
            self.sender = None;
        }
        sent.map_err(|error| format!("{path}: {error}"))
    }

    async fn try_send(&mut self, method: Method, path: &str) -> Result<Reply, Failed> {
        let sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => self.sender.insert(sender),
            _ => self.sender.insert(connect(self.port).await?),
        };
        sender.ready().await?;
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "shop").body(Empty::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let retry_after = response.headers().contains_key("retry-after");
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Reply {
            status,
            retry_after,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn connect(port: u16) -> Result<SendRequest<Empty<Bytes>>, Failed> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(connection));
    Ok(sender)
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Panics
    /// If the request failed, or the body is something else.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, StatusCode::OK, "{self}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{self}: {error}"))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.body)
    }
}
