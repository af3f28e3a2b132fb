//! Where a schedule is played: clients, each a process of its own, and what they did and were told.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::{Clock, Micros};
use leasehold::{Fence, FenceGate};
use leasehold_testkit::process::Process;
use rustix::process::Signal;

use super::servers::Servers;
use crate::Outcome;
use crate::history::{Call, Log, NEVER, What};

/// How long a lock of an exhibit lasts unless its schedule says otherwise.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// The name that the clients of an exhibit lock.
pub(super) const NAME: &str = "stock:42";

/// One play: a lock, the server it is kept in, and the history.
pub(super) struct Scene<'a> {
    /// The word of a broken lock, or `leasehold`.
    pub(super) lock: &'static str,
    pub(super) url: String,
    pub(super) lease: Duration,
    pub(super) servers: &'a mut Servers,
    /// The count, in words.
    pub(super) remark: Option<String>,
    pub(super) log: Log,
    ops: Arc<AtomicU64>,
    /// Ours are checked by the resource; broken locks have nothing to check.
    gate: Option<FenceGate>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(lock: &'static str, url: String, servers: &'a mut Servers) -> Self {
        Self {
            lock,
            url,
            lease: LEASE,
            servers,
            remark: None,
            log: Log::memory("lab", Clock::boot()),
            ops: Arc::new(AtomicU64::new(1)),
            gate: (lock == super::OURS).then(FenceGate::new),
        }
    }

    /// A client, connected.
    pub(super) fn client(&self, who: &str) -> Client {
        self.client_with(who, who, &self.url, &[])
    }

    /// A client with a name in the history besides its own, another way to the server, and an environment.
    pub(super) fn client_with(
        &self,
        who: &str,
        seen: &str,
        url: &str,
        environment: &[String],
    ) -> Client {
        let mut command = Command::new("env");
        let _ = command.args(environment).arg(program()).arg("client");
        let _ = command.args([self.lock, url, who, &self.lease.as_millis().to_string()]);
        let process = Process::start(&mut command);
        let client = Client {
            process,
            log: self.log.of(seen),
            ops: self.ops.clone(),
            lease: self.lease.as_micros() as Micros,
            op: 0,
            held: None,
        };
        assert_eq!(client.process.hear(), "ready", "{seen} is connected");
        client
    }

    /// A present or past holder comes to the resource.
    pub(super) fn effect(&mut self, client: &Client) {
        let Some(fence) = client.held else { return };
        let accepted = match &self.gate {
            Some(gate) => gate.admit(Fence::new(fence)).is_ok(),
            None => true,
        };
        let (name, by) = (NAME.into(), client.log.who().to_owned());
        let effect = What::Effect {
            name,
            by,
            fence,
            accepted,
        };
        self.log.note(0, effect);
    }
}

/// One client, as the schedule sees it.
pub(super) struct Client {
    process: Process,
    log: Log,
    ops: Arc<AtomicU64>,
    lease: Micros,
    op: u64,
    /// The fence of what it holds or held; where locks have none, the number of the request.
    held: Option<u64>,
}

impl Client {
    /// Asks for a name; the answer comes later.
    pub(super) fn asks(&mut self, name: &str, patience: Duration) {
        self.calls(name, patience);
        let patience = patience.as_millis();
        self.process.say(&format!("lock {name} {patience}"));
    }

    /// Asks, and stands still where its lock takes more than one step.
    pub(super) fn asks_and_stops(&mut self, name: &str) {
        self.calls(name, Duration::ZERO);
        self.process.say(&format!("lock-slowly {name} 0"));
        assert_eq!(self.process.hear(), "halfway");
    }

    fn calls(&mut self, name: &str, patience: Duration) {
        self.op = self.ops.fetch_add(1, Ordering::Relaxed);
        let call = Call {
            name: name.into(),
            weight: 1,
            capacity: 1,
            waits: !patience.is_zero(),
            several: false,
            lease: self.lease,
            owner: 0,
        };
        self.log.note(self.op, What::Call(call));
    }

    pub(super) fn goes_on(&mut self) {
        self.process.say("go");
    }

    /// Whether it believes that it holds.
    pub(super) fn hears(&mut self) -> Outcome<bool> {
        let answer = self.process.hear();
        let words: Vec<_> = answer.split(' ').collect();
        match words[..] {
            ["held", fence, until] => {
                let (fence, until) = (fence.parse()?, deadline(until)?);
                self.held = Some(if fence > 0 { fence } else { self.op });
                self.log.note(self.op, What::Granted { fence, until });
                Ok(true)
            }
            ["busy"] => {
                self.log.note(self.op, What::Busy);
                Ok(false)
            }
            ["failed", ..] => {
                self.log.note(self.op, What::Failed { perhaps: true });
                Ok(false)
            }
            _ => Err(format!("{}: {answer}", self.log.who()).into()),
        }
    }

    /// Asks and hears; whether it believes that it holds.
    pub(super) fn takes(&mut self, patience: Duration) -> Outcome<bool> {
        self.asks(NAME, patience);
        self.hears()
    }

    /// The same where the schedule makes no sense otherwise.
    pub(super) fn must_take(&mut self) -> Outcome<()> {
        match self.takes(LEASE * 10)? {
            true => Ok(()),
            false => Err(format!("{} did not get a lock that is free", self.log.who()).into()),
        }
    }

    /// Looks at what it holds; whether it was told that it no longer does.
    pub(super) fn looks(&mut self) -> Outcome<bool> {
        match self.process.ask("look").as_str() {
            "lost" => {
                self.log.note(self.op, What::Lost);
                return Ok(true);
            }
            "as before" => {}
            until => self.log.note(self.op, What::Until(deadline(until)?)),
        }
        Ok(false)
    }

    /// Gives back what it holds.
    pub(super) fn releases(&mut self) -> Outcome<()> {
        let _ = self.looks()?;
        self.log.note(self.op, What::Release);
        self.process.say("unlock");
        self.is_told()
    }

    /// Begins to give it back, and stands still where that takes more than one step.
    pub(super) fn releases_and_stops(&mut self) {
        self.log.note(self.op, What::Release);
        self.process.say("unlock-slowly");
        assert_eq!(self.process.hear(), "halfway");
    }

    /// Hears what its release came to.
    pub(super) fn is_told(&mut self) -> Outcome<()> {
        let held = self.process.hear().parse()?;
        let asked = false;
        self.log.note(self.op, What::Released { held, asked });
        Ok(())
    }

    /// Sends a command that only some locks know; the answer.
    pub(super) fn says(&mut self, word: &str) -> String {
        self.process.ask(word)
    }

    pub(super) fn stands_still(&self, still: bool) {
        let who = self.log.who().to_owned();
        if still {
            self.log.note(0, What::Paused(who));
            self.process.signal(Signal::STOP);
        } else {
            self.process.signal(Signal::CONT);
            self.log.note(0, What::Resumed(who));
        }
    }

    pub(super) fn dies(self) {
        let who = self.log.who().to_owned();
        self.log.note(0, What::Crashed(who));
        self.process.kill();
    }
}

fn deadline(word: &str) -> Outcome<Micros> {
    match word {
        "never" => Ok(NEVER),
        until => Ok(until.parse()?),
    }
}

/// This program; of a test, the one that was built with it.
fn program() -> std::path::PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own
        .parent()
        .and_then(std::path::Path::parent)
        .map(|dir| dir.join("leasehold-lab"));
    match beside {
        Some(beside) if own.file_name() != Some("leasehold-lab".as_ref()) && beside.exists() => {
            beside
        }
        _ => own,
    }
}

/// Time passes: schedules are made of it.
#[expect(
    clippy::disallowed_methods,
    reason = "the schedule is that a client is late"
)]
pub(super) fn rest(time: Duration) {
    std::thread::sleep(time);
}
