//! One server, however often the connection to it has to be made again.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::super::config::Config;
use super::super::error::Trouble;
use super::connection::{Channel, Conn, Greeting, load};
use super::keeper::Keeper;
use super::resp::{Call, Reply};
use super::stream::Address;
use crate::sync::Shared;

/// A message that answers no request.
pub(in super::super) enum Unasked<'a> {
    Message {
        channel: &'a [u8],
        message: &'a [u8],
    },
    /// A connection ended, or another began: messages may have been missed.
    Missed,
}

/// Shared by the connections of one deployment.
#[derive(Clone)]
pub(in super::super) struct Common {
    pub(in super::super) config: Config,
    /// The text of the script that is run on them.
    pub(in super::super) script: &'static str,
    pub(in super::super) hear: Arc<dyn Fn(Unasked<'_>) + Send + Sync>,
}

/// A server. Dropped, its connection ends.
pub(in super::super) struct Server {
    state: watch::Receiver<State>,
    shared: Arc<ServerShared>,
    common: Common,
    task: AbortHandle,
}

#[derive(Debug, Default)]
pub(super) struct ServerShared {
    /// Ends the connection there is.
    pub(super) retire: Notify,
    /// Where to listen, on this connection and on those after it.
    pub(super) channels: Shared<BTreeSet<Channel>>,
    pub(super) rechannel: Notify,
    /// Calls so far: the connection is looked after while there are any.
    pub(super) calls: AtomicU64,
    /// Answers so far: a server that answers is there, however long the line of requests is.
    pub(super) answers: AtomicU64,
}

#[derive(Debug, Clone)]
pub(super) enum State {
    /// Not tried yet.
    New,
    Up(Conn, Arc<Greeting>),
    Down(Trouble),
}

impl Common {
    /// Starts the task that keeps a connection: to this address, or to where the configuration leads.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(in super::super) fn server(
        &self,
        fixed: Option<Address>,
        channels: impl IntoIterator<Item = Channel>,
    ) -> Arc<Server> {
        let (tell, state) = watch::channel(State::New);
        let shared = Arc::new(ServerShared {
            channels: Shared::from(channels.into_iter().collect::<BTreeSet<_>>()),
            ..ServerShared::default()
        });
        let keeper = Keeper {
            fixed,
            common: self.clone(),
            tell,
            shared: shared.clone(),
        };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Arc::new(Server {
            state,
            shared,
            common: self.clone(),
            task,
        })
    }
}

impl Server {
    /// Whether no task keeps its connection any more: the runtime of the call that began it has ended.
    pub(in super::super) fn is_over(&self) -> bool {
        self.state.has_changed().is_err()
    }

    /// Waits for the first connection, or says why there is none.
    pub(in super::super) async fn ready(&self) -> Result<(), Trouble> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::New)).await;
        match settled.as_deref() {
            Ok(State::Up(..)) => Ok(()),
            Ok(State::Down(why)) => Err(why.clone()),
            Ok(State::New) | Err(_) => Err(stopped()),
        }
    }

    /// `INFO server` at the beginning of the present connection; or why there is none now.
    #[cfg(feature = "redlock")]
    pub(in super::super) fn info(&self) -> Result<Arc<str>, Trouble> {
        match &*self.state.borrow() {
            State::Up(_, greeting) => Ok(greeting.info.clone()),
            State::Down(why) => Err(why.clone()),
            State::New => Err(Trouble::Down("there is no connection yet".to_owned())),
        }
    }

    /// Sends calls in one go and answers for each. Waits for a connection, but not for ever.
    pub(in super::super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let (conn, _) = self.conn().await?;
        self.send_on(&conn, calls).await
    }

    /// Runs the script, once for each of these lists of words, in one round trip; `then` is sent after them. A script
    /// that the server has forgotten is loaded again.
    pub(in super::super) async fn run(
        &self,
        runs: impl IntoIterator<Item = Call>,
        then: Option<Call>,
    ) -> Result<Vec<Reply>, Trouble> {
        let (conn, greeting) = self.conn().await?;
        let mut calls: Vec<_> = runs
            .into_iter()
            .map(|words| greeting.script.and(&words))
            .collect();
        let runs = calls.len();
        calls.extend(then);
        let replies = self.send_on(&conn, &calls).await?;
        match replies.iter().any(is_forgotten) {
            false => Ok(replies),
            // In a box, as all that is rare: otherwise every call would be large to move.
            true => Box::pin(self.load_and_run(&conn, calls, runs, replies)).await,
        }
    }

    /// Runs the script once, also if its keys are on this server only because their slot is on its way to it.
    pub(in super::super) async fn run_asking(
        &self,
        words: Call,
        then: Option<Call>,
    ) -> Result<Vec<Reply>, Trouble> {
        let (conn, greeting) = self.conn().await?;
        let mut calls = vec![Call::new("ASKING"), greeting.script.and(&words)];
        calls.extend(then);
        let mut replies = self.send_on(&conn, &calls).await?;
        if replies.iter().any(is_forgotten) {
            calls.insert(0, load(self.common.script));
            replies = self.send_on(&conn, &calls).await?.split_off(1);
        }
        Ok(replies.split_off(1))
    }

    /// Only the runs that were not done are asked for again: the others must not be done twice.
    async fn load_and_run(
        &self,
        conn: &Conn,
        calls: Vec<Call>,
        runs: usize,
        mut replies: Vec<Reply>,
    ) -> Result<Vec<Reply>, Trouble> {
        let undone = |at: &usize| *at >= runs || is_forgotten(&replies[*at]);
        let places: Vec<_> = (0..calls.len()).filter(undone).collect();
        let mut again = vec![load(self.common.script)];
        again.extend(places.iter().map(|at| calls[*at].clone()));
        let answered = self.send_on(conn, &again).await?;
        for (at, reply) in places.into_iter().zip(answered.into_iter().skip(1)) {
            replies[at] = reply;
        }
        Ok(replies)
    }

    async fn send_on(&self, conn: &Conn, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let _ = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let sent = conn.send(calls).await;
        let _ = self.shared.answers.fetch_add(1, Ordering::Relaxed);
        sent
    }

    async fn conn(&self) -> Result<(Conn, Arc<Greeting>), Trouble> {
        // The stream may have ended a moment before the keeper says so.
        if let State::Up(conn, greeting) = &*self.state.borrow()
            && !conn.is_over()
        {
            return Ok((conn.clone(), greeting.clone()));
        }
        Box::pin(self.wait_for_conn()).await
    }

    async fn wait_for_conn(&self) -> Result<(Conn, Arc<Greeting>), Trouble> {
        let mut state = self.state.clone();
        let settled = |state: &State| match state {
            State::Up(conn, _) => !conn.is_over(),
            State::Down(why) => why.is_final(),
            State::New => false,
        };
        let patience = self.common.config.patience;
        let waited = tokio::time::timeout(patience, state.wait_for(settled)).await;
        match waited.as_ref().map(|state| state.as_deref()) {
            Ok(Ok(State::Up(conn, greeting))) => Ok((conn.clone(), greeting.clone())),
            Ok(Err(_)) => Err(stopped()),
            _ => Err(match &*self.state.borrow() {
                State::Down(why) => why.clone(),
                _ => Trouble::Down("there is no connection".to_owned()),
            }),
        }
    }

    /// Listens to one more channel. Messages are heard once this has returned.
    pub(in super::super) async fn subscribe(&self, channel: Channel) -> Result<(), Trouble> {
        let call = channel.subscribe();
        let _ = self.shared.channels.lock().insert(channel);
        let reply = self.send(&[call]).await?.pop();
        reply.unwrap_or(Reply::Nil).ok().map(drop)
    }

    pub(in super::super) async fn unsubscribe(&self, channel: &str) {
        let known = Channel::Plain(channel.to_owned());
        let _ = self.shared.channels.lock().remove(&known);
        // If it cannot be sent, the next connection does without.
        let _ = self.send(&[Call::new("UNSUBSCRIBE").arg(channel)]).await;
    }

    /// Listens to these channels instead. Those that moved away the server ends by itself.
    pub(super) fn listen(&self, channels: BTreeSet<Channel>) {
        let before = std::mem::replace(&mut *self.shared.channels.lock(), channels.clone());
        if before != channels {
            self.shared.rechannel.notify_one();
        }
    }

    /// Ends the connection, so that another is made: perhaps to another server.
    pub(in super::super) fn renew(&self) {
        self.shared.retire.notify_one();
    }
}

fn is_forgotten(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(trouble) if trouble.code() == "NOSCRIPT")
}

fn stopped() -> Trouble {
    Trouble::Down("the runtime that kept the connection has ended".to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}
