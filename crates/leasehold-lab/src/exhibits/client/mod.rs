//! One client of a lock, as a process of its own: it is told what to do line by line.

mod connection;
mod on_redis;
mod on_sql;
mod on_zookeeper;
mod ours;

use std::time::Duration;

use async_trait::async_trait;
use leasehold::engine::Clock;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::Outcome;

/// Both ends of a channel: a client that is granted tells it.
type Post<T> = (UnboundedSender<T>, UnboundedReceiver<T>);

/// A client's belief.
struct Held {
    /// 0 where there are none.
    fence: u64,
    /// For how long; for ever if nothing says so.
    left: Option<Duration>,
}

/// Believed without an end.
const FOR_EVER: Held = Held {
    fence: 0,
    left: None,
};

/// A lock as a client uses it.
#[async_trait]
trait Lock: Send {
    async fn try_lock(&mut self, name: &str, desk: &mut Desk) -> Outcome<Option<Held>>;

    async fn lock(
        &mut self,
        name: &str,
        patience: Duration,
        desk: &mut Desk,
    ) -> Outcome<Option<Held>> {
        poll(self, name, patience, desk).await
    }

    /// Whether the caller is told that it had held the lock until then.
    async fn unlock(&mut self, desk: &mut Desk) -> Outcome<bool>;

    /// Its present belief, in words; broken locks do not look.
    fn look(&self) -> String {
        "as before".to_owned()
    }

    /// Words that only some know.
    async fn other(&mut self, word: &str) -> Outcome<String> {
        Err(format!("no such word: {word}").into())
    }
}

/// Asks every few milliseconds.
async fn poll<L: Lock + ?Sized>(
    lock: &mut L,
    name: &str,
    patience: Duration,
    desk: &mut Desk,
) -> Outcome<Option<Held>> {
    let clock = Clock::boot();
    let end = clock.now() + patience.as_micros() as u64;
    loop {
        let held = lock.try_lock(name, desk).await?;
        if held.is_some() || clock.now() >= end {
            return Ok(held);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The client's name, and its commands.
struct Desk {
    who: String,
    lease: Duration,
    slow: bool,
    lines: UnboundedReceiver<String>,
}

impl Desk {
    /// Between two steps of one operation: stands still if it was told to.
    async fn halfway(&mut self) {
        if std::mem::take(&mut self.slow) {
            println!("halfway");
            let _ = self.lines.recv().await;
        }
    }

    /// The lease in milliseconds, as commands have it.
    fn px(&self) -> String {
        self.lease.as_millis().to_string()
    }

    /// It believes for a little less than its lease, as a careful one does.
    fn careful(&self) -> Held {
        Held {
            fence: 0,
            left: Some(self.lease * 4 / 5),
        }
    }
}

async fn open(lock: &str, url: &str, who: &str, lease: Duration) -> Outcome<Box<dyn Lock>> {
    if lock == super::OURS {
        return Ok(Box::new(ours::Ours::connect(url, who, lease).await?));
    }
    if let Some(lock) = on_sql::open(lock, url).await? {
        return Ok(lock);
    }
    if let Some(lock) = on_zookeeper::open(lock, url, lease).await? {
        return Ok(lock);
    }
    on_redis::open(lock, url)
}

/// Runs a client until its stdin ends.
///
/// # Errors
/// If there is no such lock, or its server does not do what it needs.
pub async fn act(lock: &str, url: &str, who: &str, lease: Duration) -> Outcome<()> {
    let (tell, lines) = unbounded_channel();
    drop(std::thread::spawn(move || {
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        lines.all(|line| tell.send(line).is_ok())
    }));
    let mut lock = open(lock, url, who, lease).await?;
    let mut desk = Desk {
        who: who.to_owned(),
        lease,
        slow: false,
        lines,
    };
    println!("ready");
    while let Some(line) = desk.lines.recv().await {
        let answer = obey(lock.as_mut(), &line, &mut desk).await;
        println!("{}", answer.unwrap_or_else(|error| error.to_string()));
    }
    Ok(())
}

async fn obey(lock: &mut dyn Lock, line: &str, desk: &mut Desk) -> Outcome<String> {
    let words: Vec<_> = line.split(' ').collect();
    desk.slow = words[0].ends_with("-slowly");
    match words[..] {
        ["lock" | "lock-slowly", name, patience] => {
            let patience = Duration::from_millis(patience.parse()?);
            Ok(match lock.lock(name, patience, desk).await {
                Ok(Some(held)) => held.to_string(),
                Ok(None) => "busy".to_owned(),
                Err(error) => format!("failed {error}"),
            })
        }
        ["unlock" | "unlock-slowly"] => Ok(lock.unlock(desk).await?.to_string()),
        ["look"] => Ok(lock.look()),
        _ => lock.other(line).await,
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.left {
            Some(left) => {
                let until = Clock::boot().now() + left.as_micros() as u64;
                write!(f, "held {} {until}", self.fence)
            }
            None => write!(f, "held {} never", self.fence),
        }
    }
}
