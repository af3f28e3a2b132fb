//! One connection. The only file that names the client crate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, ErrorKind, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisError, Value,
};

use super::error::Trouble;
use super::stream::{Address, Tls, open};

/// Who we say we are.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        write!(f, "Login({:?}, {password:?})", self.user)
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    pub(super) login: Login,
    pub(super) database: i64,
}

/// One command.
#[derive(Debug, Clone)]
pub(super) struct Call(redis::Cmd);

impl Call {
    pub(super) fn new(words: &str) -> Self {
        let mut cmd = redis::Cmd::new();
        for word in words.split(' ') {
            let _ = cmd.arg(word);
        }
        Self(cmd)
    }

    #[must_use]
    pub(super) fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        let _ = self.0.arg(arg.as_ref());
        self
    }
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Nil,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Refused(Trouble),
}

impl Reply {
    /// The answer, unless it is a refusal.
    pub(super) fn ok(self) -> Result<Self, Trouble> {
        match self {
            Self::Refused(trouble) => Err(trouble),
            reply => Ok(reply),
        }
    }

    pub(super) fn list(self) -> Result<Vec<Self>, Trouble> {
        match self.ok()? {
            Self::List(list) => Ok(list),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(super) fn text(self) -> Result<String, Trouble> {
        match self.ok()? {
            Self::Text(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Self::Number(number) => Ok(number.to_string()),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(super) fn number<N: std::str::FromStr>(self) -> Result<N, Trouble> {
        let text = self.text()?;
        text.parse().map_err(|_| Trouble::strange(text))
    }
}

/// Takes what the server says unasked: the channel and the message.
pub(super) type Hear = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// A connection. Its [`Driver`] must be polled for anything to happen.
#[derive(Clone)]
pub(super) struct Conn(MultiplexedConnection);

/// Moves the bytes of a connection; ends when the connection does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Conn {
    /// Connects and logs in.
    pub(super) async fn open(target: &Target, hear: Hear) -> Result<(Self, Driver), Trouble> {
        let stream = open(&target.address, target.tls.as_ref()).await?;
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(target.database)
            .set_skip_set_lib_name();
        if let Some(user) = &target.login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &target.login.password {
            info = info.set_password(password);
        }
        let push = move |push: PushInfo| {
            pushed(&hear, push);
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_push_sender(push);
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (conn, driver) = opened.map_err(|error| refused_or_down(&error))?;
        Ok((Self(conn), Box::pin(driver)))
    }

    /// Sends calls in one go and answers for each.
    pub(super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            let _ = pipeline.add_command(call.0.clone());
        }
        let sent = self
            .0
            .clone()
            .req_packed_commands(&pipeline, 0, calls.len())
            .await;
        let values = sent.map_err(|error| trouble(&error))?;
        if values.len() != calls.len() {
            return Err(Trouble::strange(values));
        }
        Ok(values.into_iter().map(reply).collect())
    }

    /// Asks one thing on a connection of its own.
    pub(super) async fn ask(target: &Target, call: Call) -> Result<Reply, Trouble> {
        let (conn, driver) = Self::open(target, Arc::new(|_, _| {})).await?;
        let calls = [call];
        let mut replies = tokio::select! {
            replies = conn.send(&calls) => replies?,
            () = driver => return Err(Trouble::Down("the server closed the connection".to_owned())),
        };
        replies
            .pop()
            .ok_or_else(|| Trouble::strange("nothing"))?
            .ok()
    }

    /// Whether the server answers within this time.
    pub(super) async fn answers(&self, patience: Duration) -> bool {
        let ping = [Call::new("PING")];
        tokio::time::timeout(patience, self.send(&ping))
            .await
            .is_ok()
    }
}

fn pushed(hear: &Hear, push: PushInfo) {
    let message = matches!(push.kind, PushKind::Message | PushKind::SMessage);
    if let (true, [Value::BulkString(channel), Value::BulkString(payload)]) =
        (message, &push.data[..])
    {
        hear(channel, payload);
    }
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Number(number),
        Value::BulkString(bytes) => Reply::Text(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Text(text.into_bytes())
        }
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::Array(values) | Value::Set(values) => {
            Reply::List(values.into_iter().map(reply).collect())
        }
        Value::Push { data, .. } => Reply::List(data.into_iter().map(reply).collect()),
        Value::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::List(flat.map(reply).collect())
        }
        Value::ServerError(error) => Reply::Refused(trouble(&RedisError::from(error))),
        other => Reply::Refused(Trouble::strange(other)),
    }
}

fn trouble(error: &RedisError) -> Trouble {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => Trouble::Cut(error.to_string()),
        _ => match error.code() {
            Some(code) => Trouble::Refused {
                code: code.to_owned(),
                detail: error.detail().unwrap_or("").to_owned(),
            },
            None => Trouble::Cut(error.to_string()),
        },
    }
}

/// Nothing was asked yet: whatever went wrong, nothing happened.
fn refused_or_down(error: &RedisError) -> Trouble {
    if error.kind() == ErrorKind::AuthenticationFailed {
        let detail = "wrong user or password".to_owned();
        return Trouble::Refused {
            code: "WRONGPASS".to_owned(),
            detail,
        };
    }
    match trouble(error) {
        refused @ Trouble::Refused { .. } => refused,
        _ => Trouble::Down(error.to_string()),
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conn")
    }
}
