//! One connection. The only file that names the client crate.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream as _;
use redis::aio::{MultiplexedConnection, PubSub};
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

    /// Nothing yet, with room for so many words of so many bytes.
    pub(super) fn with_room(words: usize, bytes: usize) -> Self {
        Self(redis::Cmd::with_capacity(words, bytes))
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
            Self::Text(bytes) => Ok(String::from_utf8(bytes)
                .unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned())),
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

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Channel {
    Plain(String),
    /// On the server that has the channel's slot.
    Sharded(String),
}

/// A connection. Its [`Driver`] must be polled for anything to happen.
#[derive(Clone)]
pub(super) struct Conn {
    inner: MultiplexedConnection,
    /// Whether the server sends messages on this connection too.
    pub(super) pushes: bool,
}

/// Moves the bytes of a connection; ends when the connection does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Conn {
    /// Connects and logs in. A server that does not know how to send messages on the same connection gets another.
    pub(super) async fn open(target: &Target, hear: Hear) -> Result<(Self, Driver), Trouble> {
        match Self::speak(target, Some(hear)).await {
            Err(trouble) if trouble.is_old_protocol() => Self::speak(target, None).await,
            opened => opened,
        }
    }

    async fn speak(target: &Target, hear: Option<Hear>) -> Result<(Self, Driver), Trouble> {
        let stream = open(&target.address, target.tls.as_ref()).await?;
        let pushes = hear.is_some();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let config = match hear {
            None => config,
            Some(hear) => config.set_push_sender(move |push: PushInfo| {
                pushed(&hear, &push);
                Ok::<(), ()>(())
            }),
        };
        let info = info(target, pushes);
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (inner, driver) = opened.map_err(|error| refused_or_down(&error))?;
        Ok((Self { inner, pushes }, Box::pin(driver)))
    }

    /// Listens to channels from now on: on this connection, or on a second one.
    pub(super) async fn listen(
        &self,
        mut driver: Driver,
        target: &Target,
        channels: &[Channel],
        hear: Hear,
    ) -> Result<Driver, Trouble> {
        if !self.pushes {
            return listen_beside(driver, target, channels, hear).await;
        }
        let calls = channels.iter().map(|channel| match channel {
            Channel::Plain(channel) => Call::new("SUBSCRIBE").arg(channel),
            Channel::Sharded(channel) => Call::new("SSUBSCRIBE").arg(channel),
        });
        let calls: Vec<_> = calls.collect();
        let replies = tokio::select! {
            replies = self.send(&calls) => replies?,
            () = &mut driver => return Err(closed()),
        };
        // Slots move: what was refused is listened to where it is now, after the next look.
        let mut refused = replies.into_iter().filter_map(|reply| reply.ok().err());
        match refused.find(|trouble| !trouble.is_passing()) {
            Some(trouble) => Err(trouble),
            None => Ok(driver),
        }
    }

    /// Sends calls in one go and answers for each.
    pub(super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        match calls {
            [] => return Ok(Vec::new()),
            [call] => return Ok(vec![self.send_one(call).await?]),
            _ => {}
        }
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            let _ = pipeline.add_command(call.0.clone());
        }
        let sent = self
            .inner
            .clone()
            .send_packed_commands(&pipeline, 0, calls.len())
            .await;
        let values = sent.map_err(|error| trouble(&error))?;
        if values.len() != calls.len() {
            return Err(Trouble::strange(values));
        }
        Ok(values.into_iter().map(reply).collect())
    }

    /// The commonest case, without a pipeline and a copy of the call.
    async fn send_one(&self, call: &Call) -> Result<Reply, Trouble> {
        match self.inner.clone().send_packed_command(&call.0).await {
            Ok(value) => Ok(reply(value)),
            Err(error) => match trouble(&error) {
                refused @ Trouble::Refused { .. } => Ok(Reply::Refused(refused)),
                cut => Err(cut),
            },
        }
    }

    /// Asks one thing on a connection of its own.
    pub(super) async fn ask(target: &Target, call: Call) -> Result<Reply, Trouble> {
        let (conn, driver) = Self::open(target, Arc::new(|_, _| {})).await?;
        let calls = [call];
        let mut replies = tokio::select! {
            replies = conn.send(&calls) => replies?,
            () = driver => return Err(closed()),
        };
        replies
            .pop()
            .ok_or_else(|| Trouble::strange("nothing"))?
            .ok()
    }
}

fn info(target: &Target, pushes: bool) -> RedisConnectionInfo {
    let protocol = match pushes {
        true => ProtocolVersion::RESP3,
        false => ProtocolVersion::RESP2,
    };
    let mut info = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_db(target.database)
        .set_skip_set_lib_name();
    if let Some(user) = &target.login.user {
        info = info.set_username(user);
    }
    if let Some(password) = &target.login.password {
        info = info.set_password(password);
    }
    info
}

/// Listens on a second connection; both end together.
async fn listen_beside(
    driver: Driver,
    target: &Target,
    channels: &[Channel],
    hear: Hear,
) -> Result<Driver, Trouble> {
    let stream = open(&target.address, target.tls.as_ref()).await?;
    let listening = PubSub::new(&info(target, false), stream).await;
    let mut listening = listening.map_err(|error| refused_or_down(&error))?;
    for channel in channels {
        let Channel::Plain(channel) = channel else {
            return Err(Trouble::Unfit(
                "a cluster needs RESP3 on every server".to_owned(),
            ));
        };
        let subscribed = listening.subscribe(channel).await;
        subscribed.map_err(|error| refused_or_down(&error))?;
    }
    let mut messages = Box::pin(listening.into_on_message());
    Ok(Box::pin(async move {
        let heard = async {
            while let Some(message) = poll_fn(|context| messages.as_mut().poll_next(context)).await
            {
                hear(
                    message.get_channel_name().as_bytes(),
                    message.get_payload_bytes(),
                );
            }
        };
        tokio::select! {
            () = driver => {}
            () = heard => {}
        }
    }))
}

fn closed() -> Trouble {
    Trouble::Down("the server closed the connection".to_owned())
}

fn pushed(hear: &Hear, push: &PushInfo) {
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
