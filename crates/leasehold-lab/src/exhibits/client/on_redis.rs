//! Broken locks in Redis, each as people write it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::connection::Redis;
use super::{Desk, FOR_EVER, Held, Lock, poll};
use crate::Outcome;

/// The lock of one process.
static OWN: AtomicBool = AtomicBool::new(false);

const COMPARE_AND_DEL: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// How the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// A flag in the memory of this process, as a language's own mutex is.
    InProcess,
    /// `SETNX`.
    SetNx,
    /// `SETNX`, then `EXPIRE`.
    SetNxExpire,
    /// `SET NX PX`.
    SetNxPx,
    /// The end of the lease in the value, by the clock of the client that writes it.
    GetSet,
    /// The same `SET NX PX` on a majority.
    Majority,
}

/// How it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Give {
    /// In this process.
    Flag,
    /// `DEL`.
    Del,
    /// `GET`, compare, `DEL`.
    GetDel,
    /// Compared and deleted in one script.
    Script,
    /// The same, and any answer is a yes.
    Misread,
}

/// A second mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    None,
    /// It believes that it holds as long as it works.
    NeverLooks,
    /// It returns its id although its time ran out.
    TimedOut,
    /// It deletes the key also when it did not get the lock.
    Finally,
    /// Its watchdog does not stop.
    Watchdog,
    /// It asks again under another id when an answer is lost.
    AsksAnew,
    /// Its fence is a counter of the server.
    Counter,
}

/// Which of them a word means.
pub(super) fn open(word: &str, url: &str) -> Outcome<Box<dyn Lock>> {
    let (take, give, slip) = match word {
        "in-process" => (Take::InProcess, Give::Flag, Slip::NeverLooks),
        "setnx" => (Take::SetNx, Give::Del, Slip::NeverLooks),
        "setnx-expire" => (Take::SetNxExpire, Give::Del, Slip::None),
        "plain-del" => (Take::SetNxPx, Give::Del, Slip::None),
        "get-del" => (Take::SetNxPx, Give::GetDel, Slip::None),
        "getset" => (Take::GetSet, Give::Del, Slip::None),
        "fixed-lease" => (Take::SetNxPx, Give::Script, Slip::NeverLooks),
        "timed-out" => (Take::SetNxPx, Give::Script, Slip::TimedOut),
        "misread-release" => (Take::SetNxPx, Give::Misread, Slip::None),
        "finally-del" => (Take::SetNxPx, Give::Del, Slip::Finally),
        "watchdog" => (Take::SetNxPx, Give::Script, Slip::Watchdog),
        "blocks-itself" => (Take::SetNxPx, Give::Script, Slip::AsksAnew),
        "amnesia" | "no-fence" | "failover" => (Take::SetNxPx, Give::Script, Slip::None),
        "counter-reset" => (Take::SetNxPx, Give::Script, Slip::Counter),
        "redlock-no-fence" => (Take::Majority, Give::Script, Slip::None),
        _ => return Err(format!("no broken lock {word}").into()),
    };
    let nodes = match url.strip_prefix("redlock://") {
        Some(hosts) => hosts
            .split(',')
            .map(Redis::connect)
            .collect::<Outcome<_>>()?,
        None => vec![Redis::connect(url)?],
    };
    Ok(Box::new(Broken {
        url: url.to_owned(),
        nodes,
        take,
        give,
        slip,
        key: String::new(),
        id: String::new(),
        ids: 0,
    }))
}

struct Broken {
    url: String,
    /// One, but for a majority.
    nodes: Vec<Redis>,
    take: Take,
    give: Give,
    slip: Slip,
    key: String,
    id: String,
    ids: u64,
}

impl Broken {
    /// Asks once more where the connection is gone.
    fn ask(&mut self, words: &[&str]) -> Outcome<String> {
        if let Ok(answer) = self.nodes[0].ask(words) {
            return Ok(answer);
        }
        self.nodes[0] = Redis::connect(&self.url)?;
        self.nodes[0].ask(words)
    }

    /// Whether the one command was answered with a yes.
    fn set_nx_px(&mut self, px: &str) -> Outcome<bool> {
        let (key, id) = (self.key.clone(), self.id.clone());
        let words = ["SET", &key, &id, "NX", "PX", px];
        if self.slip != Slip::AsksAnew {
            return Ok(self.ask(&words)? == "OK");
        }
        let answer = self.nodes[0].ask(&words);
        if answer.is_err() {
            // It will be asked again, over a new connection and under a new id.
            self.nodes[0] = Redis::connect(&self.url)?;
        }
        Ok(answer.is_ok_and(|answer| answer == "OK"))
    }

    fn majority(&mut self, px: &str) -> Outcome<bool> {
        let mut granted = 0;
        for node in &mut self.nodes {
            let answer = node.ask(&["SET", &self.key, &self.id, "NX", "PX", px])?;
            granted += usize::from(answer == "OK");
        }
        let enough = granted > self.nodes.len() / 2;
        if !enough {
            let _ = self.delete_own()?;
        }
        Ok(enough)
    }

    fn get_set(&mut self, lease: Duration) -> Outcome<bool> {
        let key = self.key.clone();
        let end = (wall_clock() + lease.as_millis()).to_string();
        if self.ask(&["SETNX", &key, &end])? == "1" {
            return Ok(true);
        }
        let old = self.ask(&["GET", &key])?;
        let over = old.parse::<u128>().is_ok_and(|old| old < wall_clock());
        Ok(over && self.ask(&["GETSET", &key, &end])? == old)
    }

    /// On every node there is; the answer of the last one.
    fn delete_own(&mut self) -> Outcome<String> {
        let (key, id) = (&self.key, &self.id);
        if self.nodes.len() == 1 {
            let (key, id) = (key.clone(), id.clone());
            return self.ask(&["EVAL", COMPARE_AND_DEL, "1", &key, &id]);
        }
        let mut answer = String::new();
        for node in &mut self.nodes {
            answer = node.ask(&["EVAL", COMPARE_AND_DEL, "1", key, id])?;
        }
        Ok(answer)
    }

    /// Writes the key every third of a lease. The release does not stop it.
    fn start_watchdog(&self, px: String) -> Outcome<()> {
        let mut redis = Redis::connect(&self.url)?;
        let (key, id) = (self.key.clone(), self.id.clone());
        let third = Duration::from_millis(px.parse::<u64>()? / 3);
        drop(std::thread::spawn(move || {
            while redis.ask(&["SET", &key, &id, "PX", &px]).is_ok() {
                super::super::stage::rest(third);
            }
        }));
        Ok(())
    }
}

#[async_trait]
impl Lock for Broken {
    async fn try_lock(&mut self, name: &str, desk: &mut Desk) -> Outcome<Option<Held>> {
        self.ids += 1;
        self.key = format!("lock:{name}");
        self.id = format!("{}-{}", desk.who, self.ids);
        let (key, px) = (self.key.clone(), desk.px());
        let got = match self.take {
            Take::InProcess => !OWN.swap(true, Ordering::SeqCst),
            Take::SetNx => self.ask(&["SETNX", &key, "1"])? == "1",
            Take::SetNxExpire => {
                let got = self.ask(&["SETNX", &key, "1"])? == "1";
                if got {
                    desk.halfway().await;
                    let _ = self.ask(&["PEXPIRE", &key, &px])?;
                }
                got
            }
            Take::SetNxPx => self.set_nx_px(&px)?,
            Take::GetSet => self.get_set(desk.lease)?,
            Take::Majority => self.majority(&px)?,
        };
        if !got {
            return Ok(None);
        }
        let fence = match self.slip {
            Slip::Counter => self.ask(&["INCR", &format!("fence:{name}")])?.parse()?,
            _ => 0,
        };
        if self.slip == Slip::Watchdog {
            self.start_watchdog(px)?;
        }
        Ok(Some(match self.slip {
            Slip::NeverLooks => FOR_EVER,
            _ => Held {
                fence,
                ..desk.careful()
            },
        }))
    }

    async fn lock(
        &mut self,
        name: &str,
        patience: Duration,
        desk: &mut Desk,
    ) -> Outcome<Option<Held>> {
        let held = poll(self, name, patience, desk).await?;
        match self.slip {
            // The loop is over; what ended it is not asked.
            Slip::TimedOut if !patience.is_zero() => Ok(Some(desk.careful())),
            Slip::Finally if held.is_none() => {
                let key = self.key.clone();
                let _ = self.ask(&["DEL", &key])?;
                Ok(None)
            }
            _ => Ok(held),
        }
    }

    async fn unlock(&mut self, desk: &mut Desk) -> Outcome<bool> {
        let (key, id) = (self.key.clone(), self.id.clone());
        Ok(match self.give {
            Give::Flag => OWN.swap(false, Ordering::SeqCst),
            Give::Del => {
                // The answer does not say whose key it was.
                let _ = self.ask(&["DEL", &key])?;
                false
            }
            Give::GetDel => {
                let mine = self.ask(&["GET", &key])? == id;
                desk.halfway().await;
                mine && self.ask(&["DEL", &key])? == "1"
            }
            Give::Script => self.delete_own()? == "1",
            Give::Misread => !self.delete_own()?.is_empty(),
        })
    }
}

/// Milliseconds, by this machine's idea of the time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "the mistake is to ask this clock"
)]
fn wall_clock() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_millis()
}
