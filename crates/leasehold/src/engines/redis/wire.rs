//! One connection to a server: how it is opened, and how it listens.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::error::Trouble;
use super::pipe::{self, CLOSED, Hear, Pipe};
use super::resp::{Call, Reply};
use super::stream::{Address, open};
use crate::engines::tls::Tls;

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
    pipe: Pipe,
    /// Whether the server sends messages on this connection too.
    pub(super) pushes: bool,
}

/// Moves the bytes of a connection; ends when the connection does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the connection is for decides how the server speaks on it.
#[derive(Clone, Copy, PartialEq)]
enum Speech {
    /// RESP3: answers, and messages between them.
    Pushes,
    /// RESP2: answers.
    Answers,
    /// RESP2: messages.
    Messages,
}

impl Conn {
    /// Connects and logs in. A server that does not know how to send messages on the same connection gets another.
    pub(super) async fn open(target: &Target, hear: Hear) -> Result<(Self, Driver), Trouble> {
        match Self::speak(target, hear.clone(), Speech::Pushes).await {
            Err(trouble) if trouble.is_old_protocol() => {
                Self::speak(target, hear, Speech::Answers).await
            }
            opened => opened,
        }
    }

    async fn speak(target: &Target, hear: Hear, speech: Speech) -> Result<(Self, Driver), Trouble> {
        let stream = open(&target.address, target.tls.as_ref()).await?;
        let (pipe, driver) = pipe::over(stream, hear, speech == Speech::Messages);
        let conn = Self {
            pipe,
            pushes: speech == Speech::Pushes,
        };
        let mut driver: Driver = Box::pin(driver);
        for reply in conn.first(&mut driver, &hello(target, speech)).await? {
            let _ = reply.ok()?;
        }
        Ok((conn, driver))
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
            let (conn, mut beside) = Self::speak(target, hear, Speech::Messages).await?;
            conn.subscribe(&mut beside, channels).await?;
            return Ok(Box::pin(async move {
                tokio::select! {
                    () = driver => {}
                    () = beside => {}
                }
            }));
        }
        self.subscribe(&mut driver, channels).await?;
        Ok(driver)
    }

    async fn subscribe(&self, driver: &mut Driver, channels: &[Channel]) -> Result<(), Trouble> {
        let calls = channels.iter().map(|channel| match channel {
            Channel::Plain(channel) => Call::new("SUBSCRIBE").arg(channel),
            Channel::Sharded(channel) => Call::new("SSUBSCRIBE").arg(channel),
        });
        let replies = self.first(driver, &calls.collect::<Vec<_>>()).await?;
        // Slots move: what was refused is listened to where it is now, after the next look.
        let mut refused = replies.into_iter().filter_map(|reply| reply.ok().err());
        match refused.find(|trouble| !trouble.is_passing()) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Sends calls on a connection that nobody drives yet.
    pub(super) async fn first(
        &self,
        driver: &mut Driver,
        calls: &[Call],
    ) -> Result<Vec<Reply>, Trouble> {
        let answered = tokio::select! {
            replies = self.send(calls) => replies,
            () = driver => Err(closed()),
        };
        // Nobody uses it yet: whatever went wrong, nothing happened.
        answered.map_err(|trouble| match trouble {
            Trouble::Cut(why) => Trouble::Down(why),
            other => other,
        })
    }

    /// Sends calls in one go and answers for each.
    pub(super) fn send(&self, calls: &[Call]) -> impl Future<Output = Result<Vec<Reply>, Trouble>> {
        self.pipe.send(calls)
    }

    /// Asks one thing on a connection of its own.
    pub(super) async fn ask(target: &Target, call: Call) -> Result<Reply, Trouble> {
        let (conn, mut driver) = Self::open(target, Arc::new(|_, _| {})).await?;
        let mut replies = conn.first(&mut driver, &[call]).await?;
        replies
            .pop()
            .ok_or_else(|| Trouble::strange("nothing"))?
            .ok()
    }
}

/// What is said first.
fn hello(target: &Target, speech: Speech) -> Vec<Call> {
    let Login { user, password } = &target.login;
    let user = user.as_deref();
    let mut calls = Vec::new();
    match (speech, password) {
        (Speech::Pushes, None) => calls.push(Call::new("HELLO 3")),
        (Speech::Pushes, Some(password)) => {
            let user = user.unwrap_or("default");
            calls.push(Call::new("HELLO 3 AUTH").arg(user).arg(password));
        }
        (_, Some(password)) => {
            // Servers before version 6 know no users.
            let call = user.into_iter().fold(Call::new("AUTH"), Call::arg);
            calls.push(call.arg(password));
        }
        (_, None) => {}
    }
    if target.database != 0 {
        calls.push(Call::new("SELECT").arg(target.database.to_string()));
    }
    calls
}

fn closed() -> Trouble {
    Trouble::Down(CLOSED.to_owned())
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conn")
    }
}
