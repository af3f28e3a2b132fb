//! Broken locks in ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::engine::{Clock, Micros};
use tokio::sync::mpsc::unbounded_channel;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{Desk, FOR_EVER, Held, Lock, Post};
use crate::Outcome;
use crate::history::{Call, Log, NEVER, What};

/// Which lock a word means, if it is one of these.
pub(super) async fn open(word: &str, url: &str, lease: Duration) -> Outcome<Option<Box<dyn Lock>>> {
    if !["dead-session", "herd"].contains(&word) {
        return Ok(None);
    }
    let host = url.trim_start_matches("zookeeper://");
    let host = host.split('/').next().unwrap_or_default().to_owned();
    let client = connect(&host, lease).await?;
    Ok(Some(match word {
        "herd" => Box::new(Herd::new(host, client)),
        _ => Box::new(Named { client }),
    }))
}

async fn connect(host: &str, session: Duration) -> Outcome<Client> {
    let connector = Client::connector().with_session_timeout(session);
    Ok(connector.connect(host).await?)
}

const NODE: &str = "/lock";

/// Whether the node could be made.
async fn create(client: &Client, data: &str) -> Outcome<bool> {
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    match client.create(NODE, data.as_bytes(), &options).await {
        Ok(_) => Ok(true),
        Err(Error::NodeExists) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// One node; the client whose name is in it holds the lock.
struct Named {
    client: Client,
}

#[async_trait]
impl Lock for Named {
    async fn try_lock(&mut self, _name: &str, desk: &mut Desk) -> Outcome<Option<Held>> {
        let got = create(&self.client, &desk.who).await? || {
            // Our own name: an answer that was lost, surely.
            let found = self.client.get_data(NODE).await;
            found.is_ok_and(|(data, _)| data == desk.who.as_bytes())
        };
        Ok(got.then_some(FOR_EVER))
    }

    async fn unlock(&mut self, _desk: &mut Desk) -> Outcome<bool> {
        let _ = self.client.delete(NODE, None).await;
        Ok(false)
    }
}

/// One node that every waiter watches.
struct Herd {
    host: String,
    holder: Client,
    op: u64,
    log: Log,
    granted: Post<(u64, Client)>,
}

impl Herd {
    fn new(host: String, holder: Client) -> Self {
        Self {
            host,
            holder,
            op: 0,
            log: Log::memory("crowd", Clock::boot()),
            granted: unbounded_channel(),
        }
    }

    /// So many sessions watch the node that the first one has made.
    async fn gather(&mut self, count: u64) -> Outcome<()> {
        self.log.note(0, call());
        assert!(create(&self.holder, "").await?, "the node is new");
        self.log.note(0, granted());
        let tell = Arc::new(self.granted.0.clone());
        for op in 1..=count {
            let client = connect(&self.host, Duration::from_secs(100)).await?;
            let log = self.log.of(format!("crowd/{op}"));
            log.note(op, call());
            let (_, watcher) = client.check_and_watch_stat(NODE).await?;
            log.note(op, What::Queued);
            let tell = tell.clone();
            drop(tokio::spawn(async move {
                let _ = watcher.changed().await;
                while !create(&client, "").await? {
                    let (_, watcher) = client.check_and_watch_stat(NODE).await?;
                    let _ = watcher.changed().await;
                }
                log.note(op, granted());
                let _ = tell.send((op, client));
                Outcome::Ok(())
            }));
        }
        Ok(())
    }

    /// The holder deletes the node; the first client makes the next.
    async fn pass_on(&mut self) -> Outcome<()> {
        let log = match self.op {
            0 => self.log.clone(),
            op => self.log.of(format!("crowd/{op}")),
        };
        log.note(self.op, What::Release);
        self.holder.delete(NODE, None).await?;
        let told = What::Released {
            held: true,
            asked: false,
        };
        log.note(self.op, told);
        let next = self.granted.1.recv().await;
        (self.op, self.holder) = next.ok_or("no client is left")?;
        Ok(())
    }
}

/// A request of one of the crowd.
pub(super) fn call() -> What {
    What::Call(Call {
        name: super::super::stage::NAME.into(),
        weight: 1,
        capacity: 1,
        waits: true,
        several: false,
        lease: Duration::from_secs(100).as_micros() as Micros,
        owner: 0,
    })
}

fn granted() -> What {
    What::Granted {
        fence: 0,
        until: NEVER,
    }
}

#[async_trait]
impl Lock for Herd {
    async fn try_lock(&mut self, _name: &str, _desk: &mut Desk) -> Outcome<Option<Held>> {
        Err("it locks as a crowd".into())
    }

    async fn unlock(&mut self, _desk: &mut Desk) -> Outcome<bool> {
        Ok(false)
    }

    async fn other(&mut self, word: &str) -> Outcome<String> {
        match word.split_once(' ') {
            Some(("crowd", count)) => {
                self.gather(count.parse()?).await?;
                Ok("all wait".to_owned())
            }
            _ if word == "next" => {
                self.pass_on().await?;
                Ok("passed on".to_owned())
            }
            _ => Ok(serde_json::to_string(&self.log.take())?),
        }
    }
}
