//! Leasehold, in the same hands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::engine::{Clock, Query, Url, ZooKeeper};
use leasehold::{Client, ConnectOptions, Guard, Name, Released};
use tokio::sync::mpsc::unbounded_channel;

use super::on_zookeeper::call;
use super::{Desk, Held, Lock, Post};
use crate::Outcome;
use crate::history::{Log, What};

/// One client of it.
pub(super) struct Ours {
    client: Client,
    guard: Option<Guard>,
    crowd: Crowd,
}

impl Ours {
    pub(super) async fn connect(url: &str, who: &str, lease: Duration) -> Outcome<Self> {
        let identity = leasehold::engine::Identity::of_this_process().called(who);
        let options = ConnectOptions::new().lease(lease).identity(identity);
        Ok(Self {
            client: options.connect(url).await?,
            guard: None,
            crowd: Crowd::new(url, lease),
        })
    }
}

fn held(guard: &Guard) -> Held {
    Held {
        fence: guard.fence().get(),
        left: Some(guard.remaining()),
    }
}

#[async_trait]
impl Lock for Ours {
    async fn try_lock(&mut self, name: &str, desk: &mut Desk) -> Outcome<Option<Held>> {
        self.lock(name, Duration::ZERO, desk).await
    }

    async fn lock(
        &mut self,
        name: &str,
        patience: Duration,
        desk: &mut Desk,
    ) -> Outcome<Option<Held>> {
        let mutex = self.client.mutex(name);
        let clock = Clock::boot();
        let end = clock.now() + patience.as_micros() as u64;
        let mut unclear = false;
        let asked = loop {
            let left = Duration::from_micros(end.saturating_sub(clock.now()));
            let asked = match left {
                Duration::ZERO => mutex.try_lock().await,
                left => mutex.lock_within(left).await,
            };
            // An answer that was lost is an error: a client that has the patience asks again.
            match asked {
                Err(error) if error.may_have_happened() && clock.now() < end => unclear = true,
                Ok(None) if unclear => return Err("its time ran out without a clear answer".into()),
                asked => break asked,
            }
        };
        // It is one step: a client that stands still in it does so before the answer, or after it.
        desk.halfway().await;
        self.guard = asked?;
        Ok(self.guard.as_ref().map(held))
    }

    async fn unlock(&mut self, desk: &mut Desk) -> Outcome<bool> {
        desk.halfway().await;
        let guard = self.guard.take().ok_or("nothing is held")?;
        Ok(guard.release().await? == Released::Released)
    }

    fn look(&self) -> String {
        match &self.guard {
            Some(guard) if guard.check().is_ok() => {
                let until = Clock::boot().now() + guard.remaining().as_micros() as u64;
                until.to_string()
            }
            _ => "lost".to_owned(),
        }
    }

    async fn other(&mut self, word: &str) -> Outcome<String> {
        match word.split_once(' ') {
            Some(("crowd", count)) => {
                self.crowd.gather(&self.client, count.parse()?).await?;
                Ok("all wait".to_owned())
            }
            _ if word == "next" => {
                self.crowd.pass_on().await?;
                Ok("passed on".to_owned())
            }
            _ => Ok(serde_json::to_string(&self.crowd.log.take())?),
        }
    }
}

/// Many clients, each in a session of its own.
struct Crowd {
    url: String,
    lease: Duration,
    log: Log,
    holder: Option<(u64, Guard)>,
    granted: Post<(u64, Guard)>,
}

/// So many come one after the other, so that their order is known; the others all at once.
const ORDERED: u64 = 12;

impl Crowd {
    fn new(url: &str, lease: Duration) -> Self {
        Self {
            url: url.to_owned(),
            lease,
            log: Log::memory("crowd", Clock::boot()),
            holder: None,
            granted: unbounded_channel(),
        }
    }

    async fn gather(&mut self, bystander: &Client, count: u64) -> Outcome<()> {
        self.log.note(0, call());
        let guard = bystander.mutex(super::super::stage::NAME).lock().await?;
        note_grant(&self.log, 0, &guard);
        self.holder = Some((0, guard));
        for op in 1..=count {
            let options = ConnectOptions::new().lease(self.lease);
            // One session each, of this lease: an engine that does not know it opens another, and pings it too.
            let engine = ZooKeeper::from_url(&Url::parse(&self.url)?)?.lease(self.lease);
            let client = options.open(Arc::new(engine)).await?;
            let (log, tell) = (self.log.of(format!("crowd/{op}")), self.granted.0.clone());
            log.note(op, call());
            drop(tokio::spawn(async move {
                let guard = client.mutex(super::super::stage::NAME).lock().await?;
                note_grant(&log, op, &guard);
                let _ = tell.send((op, guard));
                std::future::pending::<Outcome<()>>().await
            }));
            if op <= ORDERED || op == count {
                wait_for(bystander, op).await?;
                self.log.of(format!("crowd/{op}")).note(op, What::Queued);
            }
        }
        Ok(())
    }

    async fn pass_on(&mut self) -> Outcome<()> {
        let (op, guard) = self.holder.take().ok_or("no client holds")?;
        let log = match op {
            0 => self.log.clone(),
            op => self.log.of(format!("crowd/{op}")),
        };
        log.note(op, What::Release);
        let held = guard.release().await? == Released::Released;
        let asked = true;
        log.note(op, What::Released { held, asked });
        self.holder = self.granted.1.recv().await;
        Ok(())
    }
}

fn note_grant(log: &Log, op: u64, guard: &Guard) {
    let until = log.now() + guard.remaining().as_micros() as u64;
    let fence = guard.fence().get();
    log.note(op, What::Granted { fence, until });
}

/// Until so many are in line.
async fn wait_for(client: &Client, count: u64) -> Outcome<()> {
    let query = Query::name(Name::new(super::super::stage::NAME)?);
    loop {
        let lines = client.inspect(&query).await?;
        let waiters = lines.first().map_or(0, |line| line.waiters.len());
        if waiters as u64 >= count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
