//! Thirty clients at once.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::Fleet;
use super::http::{Client, Reply};

/// How much is bought.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Clients, each with a connection of its own.
    pub clients: usize,
    /// What each of them wants, one piece after the other: it asks until it is told "sold" or "sold out".
    pub each: usize,
    /// Pieces at the beginning.
    pub stock: i64,
}

impl Load {
    /// What the documentation shows.
    pub const FULL: Self = Self {
        clients: 30,
        each: 10,
        stock: 100,
    };
}

/// A client that is told "busy" asks again after a pause of up to so long, drawn anew each time.
pub const PAUSE: Duration = Duration::from_millis(10);

/// How long a client asks for one piece at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients were told.
#[derive(Debug, Default)]
pub struct Told {
    /// How long each sale took, from the first time that the client asked for this piece.
    pub sold: Vec<Duration>,
    /// How many were told that there are no more.
    pub sold_out: usize,
    /// How many were told to come again.
    pub busy: usize,
    /// What else was told.
    pub failed: Vec<String>,
    /// Sales of each instance.
    pub instances: BTreeMap<String, usize>,
    /// From the first request until the last sale.
    pub span: Duration,
}

/// Buys through nginx.
pub fn buy(fleet: &Fleet, load: Load, path: &str) -> Told {
    let begin = Instant::now();
    let port = fleet.port();
    fleet.runtime.block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..load.clients {
            let path = path.to_owned();
            let _ = clients.spawn(async move { one(port, load.each, &path, begin).await });
        }
        let mut told = Told::default();
        while let Some(one) = clients.join_next().await {
            told.add(one.expect("no client panics"));
        }
        told.sold.sort_unstable();
        told
    })
}

/// Sends all requests at once, each on a connection of its own.
///
/// # Panics
/// If one has no reply.
pub fn at_once(fleet: &Fleet, method: &Method, paths: &[String]) -> Vec<Reply> {
    let port = fleet.port();
    fleet.runtime.block_on(async {
        let mut clients = JoinSet::new();
        for path in paths {
            let (method, path) = (method.clone(), path.clone());
            let _ = clients.spawn(async move { Client::new(port).send(method, &path).await });
        }
        let replies = clients.join_all().await;
        let reply = |sent: Result<_, _>| sent.unwrap_or_else(|error| panic!("{error}"));
        replies.into_iter().map(reply).collect()
    })
}

async fn one(port: u16, pieces: usize, path: &str, begin: Instant) -> Told {
    let mut client = Client::new(port);
    let mut told = Told::default();
    for _ in 0..pieces {
        let first = Instant::now();
        loop {
            let busy = told.busy;
            match client.send(Method::POST, path).await {
                Ok(reply) => told.note(&reply, first.elapsed(), begin.elapsed()),
                Err(error) => told.failed.push(error),
            }
            if told.busy == busy || first.elapsed() > PATIENCE {
                break;
            }
            tokio::time::sleep(PAUSE.mul_f64(rand::random())).await;
        }
    }
    told
}

impl Told {
    /// All requests.
    pub fn requests(&self) -> usize {
        self.sold.len() + self.sold_out + self.busy + self.failed.len()
    }

    fn note(&mut self, reply: &Reply, took: Duration, since: Duration) {
        match reply.status {
            StatusCode::OK => {
                self.sold.push(took);
                self.span = since;
                let instance = reply.json()["instance"].as_str().map(str::to_owned);
                *self
                    .instances
                    .entry(instance.unwrap_or_default())
                    .or_default() += 1;
            }
            StatusCode::GONE => self.sold_out += 1,
            StatusCode::CONFLICT if reply.retry_after => self.busy += 1,
            _ => self.failed.push(reply.to_string()),
        }
    }

    fn add(&mut self, other: Self) {
        self.sold.extend(other.sold);
        self.sold_out += other.sold_out;
        self.busy += other.busy;
        self.failed.extend(other.failed);
        self.span = self.span.max(other.span);
        for (instance, sold) in other.instances {
            *self.instances.entry(instance).or_default() += sold;
        }
    }
}
