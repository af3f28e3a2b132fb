//! One session: the task that keeps it, over as many connections as it takes.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::config::Config;
use super::codec::{Decoder, Encoder, Op};
use super::connection::{Connection, broken};
use super::error::{Answer, Trouble, dead};
use super::mux::{AUTH, Mux, PING, ping};
use crate::clock::{Clock, micros};
use crate::engine::Host;

pub(super) struct Session {
    mux: Arc<Mux>,
    config: Config,
    servers: Servers,
    pub(super) id: i64,
    password: Vec<u8>,
    /// The timeout to ask for; from the first connection on the one that the server gave.
    pub(super) timeout: Duration,
    clock: Clock,
    /// Called each time the connection is lost.
    on_down: Box<dyn Fn() + Send + Sync>,
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long a server may take to greet: one without a leader may never answer.
const LONGEST_GREETING: Duration = Duration::from_secs(3);

/// After so many eighths of the timeout without an answer to a ping a server is given up.
const SILENT_TICKS: u32 = 3;

/// How long the server may take to end the session.
const CLOSING: Duration = Duration::from_secs(1);

impl Session {
    pub(super) fn new(
        config: &Config,
        mux: Arc<Mux>,
        timeout: Duration,
        on_down: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            mux,
            servers: Servers::new(config.hosts.clone()),
            config: config.clone(),
            id: 0,
            password: vec![0; 16],
            timeout,
            clock: Clock::boot(),
            on_down,
        }
    }

    /// The first connection: every address is tried twice, because a connection may be lost while it is made.
    pub(super) async fn open(&mut self) -> Answer<Connection> {
        let mut failed = String::new();
        let mut rounds = 0;
        loop {
            if self.servers.round.is_empty() {
                rounds += 1;
                if rounds > 2 {
                    // No request was sent, so nothing can have happened.
                    return Err(Trouble::Dead(failed));
                }
            }
            match self.connect().await {
                Err(Trouble::Unknown(why)) => failed = why,
                connected => return connected,
            }
        }
    }

    /// Keeps the session until it has ended.
    pub(super) async fn run(mut self, mut connection: Connection, closing: CancellationToken) {
        loop {
            self.mux.up();
            let why = self.serve(connection, &closing).await.to_string();
            tracing::debug!(why, "the connection ended");
            let lost = self.clock.now();
            self.mux.down(&why);
            if !closing.is_cancelled() {
                (self.on_down)();
            }
            // After seven fifths of the timeout the server has ended the session.
            let ended = lost + micros(self.timeout * 7 / 5);
            let clock = self.clock.clone();
            let again = tokio::select! {
                biased;
                () = closing.cancelled() => Err(dead("the session is closed")),
                () = clock.sleep_until(ended) => Err(dead("no server was reached in time")),
                again = self.reconnect() => again,
            };
            connection = match again {
                Ok(connection) => connection,
                Err(why) => return self.mux.over(&why),
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

    /// One try, at the next address.
    async fn connect(&mut self) -> Answer<Connection> {
        let patience = (self.timeout / 3).min(LONGEST_GREETING);
        let (host, address) = self.servers.next(patience).await?;
        match timeout(patience, self.connect_to(&host, address)).await {
            Ok(Err(Trouble::Unknown(why))) => Err(Trouble::Unknown(format!("{host}: {why}"))),
            Ok(connected) => connected,
            Err(_) => Err(Trouble::Unknown(format!(
                "{host} did not answer as a ZooKeeper server within {patience:?}"
            ))),
        }
    }

    async fn connect_to(&mut self, host: &Host, address: SocketAddr) -> Answer<Connection> {
        let (tls, cap) = (self.config.tls(), self.config.frame_cap);
        let opened = Connection::open(&host.name, address, tls.as_ref(), cap).await;
        let mut connection = opened.map_err(|error| broken(&error))?;
        connection.send(self.hello()).await?;
        let welcome = connection.frame().await?;
        self.welcomed(&welcome)?;
        connection.send(self.mux.greeting(self.login())).await?;
        loop {
            let bytes = connection.frame().await?;
            let frame = super::codec::Frame { bytes, cut: None };
            if self.mux.hear(frame)? == PING {
                return Ok(connection);
            }
        }
    }

    fn hello(&self) -> Vec<u8> {
        let timeout = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = Encoder::frame().int(0).long(self.mux.zxid()).int(timeout);
        hello.long(self.id).bytes(&self.password).flag(false).done()
    }

    fn welcomed(&mut self, answer: &[u8]) -> Answer<()> {
        let mut answer = Decoder(answer);
        let (_protocol, given, id) = (answer.int()?, answer.int()?, answer.long()?);
        let password = answer.bytes()?;
        let given = Duration::from_millis(u64::try_from(given).unwrap_or(0));
        if given.is_zero() {
            return Err(dead("the server has ended the session"));
        }
        // Leases that were granted under the longer timeout would end before their holders know.
        if self.id != 0 && given < self.timeout {
            return Err(dead("another server gives the session a shorter timeout"));
        }
        self.timeout = given;
        self.id = id;
        self.password = password.to_vec();
        Ok(())
    }

    fn login(&self) -> Vec<u8> {
        let Some((scheme, secret)) = self.config.auth() else {
            return Vec::new();
        };
        let request = Encoder::request(Op::Auth).int(0).text(scheme);
        request.bytes(secret.as_bytes()).numbered(AUTH)
    }

    /// Moves bytes until the connection ends; answers why. The server is pinged every eighth of the timeout, and given up
    /// when it has been silent for three of them.
    async fn serve(&self, connection: Connection, closing: &CancellationToken) -> Trouble {
        let mut tick = interval(self.timeout / 8);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent = 0;
        let (mut reading, mut writing) = (connection.reading, connection.writing);
        let mut closed = pin!(closing.cancelled());
        loop {
            let done = tokio::select! {
                biased;
                () = self.mux.wake.notified() => {
                    writing.push(self.mux.take_out());
                    Ok(())
                }
                written = writing.write(), if !writing.is_done() => written,
                // Before the tick: read what has arrived before judging silence.
                read = reading.read() => read.and_then(|()| {
                    while let Some(frame) = reading.frames.next()? {
                        let _ = self.mux.hear(frame)?;
                    }
                    Ok(())
                }),
                () = &mut closed => return self.close(Connection { reading, writing }).await,
                _ = tick.tick() => {
                    silent = if self.mux.has_received() { 0 } else { silent + 1 };
                    self.mux.say(&ping());
                    match silent > SILENT_TICKS {
                        true => Err(Trouble::Unknown("the server does not answer".to_owned())),
                        false => Ok(()),
                    }
                }
            };
            if let Err(why) = done {
                return why;
            }
        }
    }

    /// Ends the session at the server too, which closes the connection then.
    async fn close(&self, mut connection: Connection) -> Trouble {
        let goodbye = Encoder::request(Op::CloseSession).numbered(i32::MAX);
        let close = async {
            connection.send(self.mux.take_out()).await?;
            connection.send(goodbye).await?;
            loop {
                let _ = connection.frame().await?;
            }
        };
        let _: Result<Answer<()>, _> = timeout(CLOSING, close).await;
        dead("the session is closed")
    }
}

/// A session without a task has ended.
impl Drop for Session {
    fn drop(&mut self) {
        self.mux.over(&dead(
            "the runtime that the session was opened in has ended",
        ));
    }
}

/// Where the servers are.
#[derive(Debug)]
struct Servers {
    /// Each host, and its addresses when they were last resolved.
    hosts: Vec<(Host, Vec<SocketAddr>)>,
    /// The addresses to try before any is tried again.
    round: Vec<(Host, SocketAddr)>,
}

impl Servers {
    fn new(hosts: Vec<Host>) -> Self {
        let hosts = hosts.into_iter().map(|host| (host, Vec::new())).collect();
        let round = Vec::new();
        Self { hosts, round }
    }

    /// The next address. A new round resolves all hosts again; one that cannot be resolved keeps its last addresses.
    async fn next(&mut self, patience: Duration) -> Answer<(Host, SocketAddr)> {
        let mut failed = String::new();
        if self.round.is_empty() {
            for (host, addresses) in &mut self.hosts {
                match timeout(patience, tokio::net::lookup_host((&*host.name, host.port))).await {
                    Ok(Ok(found)) => *addresses = found.collect(),
                    Ok(Err(error)) => failed = format!("{host} cannot be resolved: {error}"),
                    Err(_) => failed = format!("{host} was not resolved within {patience:?}"),
                }
            }
            self.begin_round();
        }
        self.round.pop().ok_or(Trouble::Unknown(failed))
    }

    /// All addresses of all hosts, shuffled, so that clients spread over the servers.
    fn begin_round(&mut self) {
        let hosts = self.hosts.iter();
        let all = hosts.flat_map(|(host, all)| all.iter().map(|one| (host.clone(), *one)));
        self.round = all.collect();
        self.round.shuffle(&mut rand::rng());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_address_of_every_host_is_tried_before_one_is_tried_again() {
        let mut servers = Servers::new(
            ["one:1", "two:2"]
                .map(|host| Host::parse(host, 0).unwrap())
                .into(),
        );
        let address = |last: u8| SocketAddr::from(([127, 0, 0, last], 1));
        servers.hosts[0].1 = (1..=20).map(address).collect();
        servers.hosts[1].1 = vec![address(21)];
        let mut orders = Vec::new();
        for _ in 0..2 {
            servers.begin_round();
            let mut order = Vec::new();
            while !servers.round.is_empty() {
                order.push(servers.next(Duration::ZERO).await.unwrap());
            }
            let mut sorted = order.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), 21);
            orders.push(order);
        }
        assert_ne!(orders[0], orders[1], "shuffled");
    }
}
