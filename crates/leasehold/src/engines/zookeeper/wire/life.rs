//! One ZooKeeper session from its first connection to its end, over whatever connections it takes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::config::Config;
use super::connection::{Connection, Silence};
use super::jute::{In, Op, Out};
use super::pipe::{AUTH, PING, Pipe, ping};
use super::terms::{Answer, Trouble};
use crate::clock::{Clock, micros};
use crate::engines::tls::Tls;
use crate::sync::after_others;

/// A session, and where it may be served.
pub(super) struct Life {
    pipe: Arc<Pipe>,
    hosts: Vec<String>,
    /// Which of them is next.
    next: usize,
    tls: Option<Tls>,
    auth: Option<(String, Vec<u8>)>,
    id: i64,
    password: Vec<u8>,
    /// What is asked for at first, and what the server gives from then on.
    timeout: Duration,
    clock: Clock,
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long a server may take to serve the session: one that has no leader may never say so.
const LONGEST_GREETING: Duration = Duration::from_secs(3);

/// How long the server may take to end a session that nobody needs any more.
const CLOSING: Duration = Duration::from_secs(1);

impl Life {
    pub(super) fn new(config: &Config, pipe: Arc<Pipe>, timeout: Duration) -> Self {
        let mut hosts = config.addresses();
        // Clients spread over the servers.
        let first = rand::random_range(0..hosts.len());
        hosts.rotate_left(first);
        let auth = config.auth();
        Self {
            pipe,
            hosts,
            next: 0,
            tls: config.tls(),
            auth: auth.map(|(scheme, secret)| (scheme.to_owned(), secret.as_bytes().to_vec())),
            id: 0,
            password: vec![0; 16],
            timeout,
            clock: Clock::boot(),
        }
    }

    pub(super) const fn id(&self) -> i64 {
        self.id
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The first connection: each server is asked twice, because a connection may be lost while it is made.
    pub(super) async fn open(&mut self) -> Answer<Connection> {
        let mut failed = String::new();
        for _ in 0..2 * self.hosts.len() {
            match self.connect().await {
                Err(Trouble::Unknown(why)) => failed = why,
                connected => return connected,
            }
        }
        // Nothing was asked for: nothing can have happened.
        Err(Trouble::Dead(failed))
    }

    /// Serves the session until it has ended.
    pub(super) async fn run(mut self, mut connection: Connection, closing: CancellationToken) {
        loop {
            self.pipe.up(connection.writing.clone());
            let why = self.serve(&mut connection, &closing).await;
            drop(connection);
            tracing::debug!(why, "the connection ended");
            let heard = self.clock.now();
            self.pipe.down(&why);
            // By then the server has ended the session, and all that it had.
            let ended = heard + micros(self.timeout * 7 / 5);
            let clock = self.clock.clone();
            let again = tokio::select! {
                biased;
                () = closing.cancelled() => Err(dead("the session is closed")),
                () = clock.sleep_until(ended) => Err(dead("no server was reached in time")),
                again = self.reconnect() => again,
            };
            connection = match again {
                Ok(connection) => connection,
                Err(why) => return self.pipe.over(&why),
            };
        }
    }

    async fn reconnect(&mut self) -> Answer<Connection> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.connect().await {
                Err(Trouble::Unknown(why)) => tracing::debug!(why, "no connection"),
                connected => return connected,
            }
            sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One try, at the next server.
    async fn connect(&mut self) -> Answer<Connection> {
        let host = self.hosts[self.next % self.hosts.len()].clone();
        self.next += 1;
        let patience = (self.timeout / 3).min(LONGEST_GREETING);
        match timeout(patience, self.connect_to(&host)).await {
            Ok(Err(Trouble::Unknown(why))) => Err(Trouble::Unknown(format!("{host}: {why}"))),
            Ok(connected) => connected,
            Err(_) => Err(Trouble::Unknown(format!(
                "{host} does not answer in {patience:?}"
            ))),
        }
    }

    async fn connect_to(&mut self, host: &str) -> Answer<Connection> {
        let mut connection = Connection::to(host, self.tls.as_ref()).await?;
        connection.write(&self.hello()).await?;
        let answer = connection.frame().await?;
        self.welcomed(&answer)?;
        let greeting = self.pipe.greeting(self.login());
        connection.write(&greeting).await?;
        // Its answer comes last.
        while self.pipe.hear(&connection.frame().await?)? != PING {}
        Ok(connection)
    }

    /// What is said first.
    fn hello(&self) -> Vec<u8> {
        let timeout = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = Out::frame().int(0).long(self.pipe.zxid()).int(timeout);
        hello.long(self.id).bytes(&self.password).flag(false).done()
    }

    fn welcomed(&mut self, answer: &[u8]) -> Answer<()> {
        let mut answer = In(answer);
        let (_protocol, given, id) = (answer.int()?, answer.int()?, answer.long()?);
        let password = answer.bytes()?;
        let given = Duration::from_millis(u64::try_from(given).unwrap_or(0));
        if given.is_zero() {
            return Err(dead("the server has ended the session"));
        }
        // What was granted under the longer time would be lost before it is known.
        if self.id != 0 && given < self.timeout {
            return Err(dead("another server gives the session less time"));
        }
        self.timeout = given;
        self.id = id;
        self.password = password.to_vec();
        Ok(())
    }

    fn login(&self) -> Vec<u8> {
        let Some((scheme, secret)) = &self.auth else {
            return Vec::new();
        };
        let request = Out::request(Op::Auth).int(0).text(scheme).bytes(secret);
        request.numbered(AUTH)
    }

    /// Moves the bytes until the connection ends; says why it did. A silent server is noticed after half of the time that
    /// the session has.
    async fn serve(&self, connection: &mut Connection, closing: &CancellationToken) -> String {
        let mut tick = interval(self.timeout / 8);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut blocked, mut silence) = (false, Silence::default());
        let writing = connection.writing.clone();
        // Waited for over and over: each of them stays where it is registered.
        let mut closed = pin!(closing.cancelled());
        let mut wake = pin!(self.pipe.wake.notified());
        loop {
            tokio::select! {
                // What was heard counts before what was not.
                biased;
                read = connection.read() => {
                    if let Err(trouble) = read.and_then(|()| connection.understand(&self.pipe)) {
                        return trouble.to_string();
                    }
                    // Whoever was answered goes on first.
                    after_others().await;
                }
                () = &mut wake => {
                    wake.set(self.pipe.wake.notified());
                    blocked = true;
                }
                _ = writing.writable(), if blocked => {}
                () = &mut closed => return self.close(connection).await,
                _ = tick.tick() => {
                    let look = self.pipe.look();
                    if silence.is_too_long(&look) {
                        return "the server does not answer".to_owned();
                    }
                    if silence.asks_for_a_word(&look)
                        && let Err(error) = self.pipe.say(&ping())
                    {
                        return error.to_string();
                    }
                }
            }
            if blocked {
                match self.pipe.write() {
                    Ok(all) => blocked = !all,
                    Err(error) => return error.to_string(),
                }
            }
        }
    }

    /// Ends the session at the server too.
    async fn close(&self, connection: &mut Connection) -> String {
        let goodbye = Out::request(Op::CloseSession).numbered(i32::MAX);
        let close = async {
            let _ = self.pipe.say(&goodbye);
            // The server closes the connection.
            while connection.read().await.is_ok() {}
        };
        let _ = timeout(CLOSING, close).await;
        "the session is closed".to_owned()
    }
}

/// Whoever asks a session that nobody serves is told so.
impl Drop for Life {
    fn drop(&mut self) {
        let ended = dead("the runtime that kept the session has ended");
        self.pipe.over(&ended);
    }
}

fn dead(why: &str) -> Trouble {
    Trouble::Dead(why.to_owned())
}
