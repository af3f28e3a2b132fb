//! The worker processes: started, killed, stopped, and told to end.

use std::process::{Child, Command, Stdio};

use leasehold_testkit::process::send;
use rustix::process::{Pid, Signal};

use super::Plan;
use super::gate::Gate;
use crate::Outcome;
use crate::history::{Log, What};

/// One place for a worker; a killed one is followed by another.
#[derive(Debug)]
pub(super) struct Worker {
    index: u64,
    life: u64,
    child: Child,
    stopped: bool,
}

impl Worker {
    pub(super) fn start(
        plan: &Plan,
        url: &str,
        gate: &Gate,
        index: u64,
        life: u64,
    ) -> Outcome<Self> {
        let who = format!("w{index}.{life}");
        // Every other worker is one task, so that its place in the engine's line is known to be its own.
        let tasks = if index.is_multiple_of(2) { 1 } else { 4 };
        let child = Command::new(&plan.program)
            .args(["worker", "--url", url, "--who", &who])
            .arg("--log")
            .arg(plan.into.join(format!("{who}.jsonl")))
            .arg("--gate")
            .arg(gate.path())
            .args(["--seed", &(plan.seed ^ (index << 32) ^ life).to_string()])
            .args(["--lease", &plan.lease.as_millis().to_string()])
            .args(["--rest", &plan.rest.as_millis().to_string()])
            .args(["--tasks", &tasks.to_string()])
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self {
            index,
            life,
            child,
            stopped: false,
        })
    }

    pub(super) fn who(&self) -> String {
        format!("w{}.{}", self.index, self.life)
    }

    /// `kill -9`, and another one in its place.
    pub(super) fn replace(
        &mut self,
        plan: &Plan,
        url: &str,
        gate: &Gate,
        log: &Log,
    ) -> Outcome<()> {
        log.note(0, What::Crashed(self.who()));
        self.child.kill()?;
        let _ = self.child.wait()?;
        *self = Self::start(plan, url, gate, self.index, self.life + 1)?;
        Ok(())
    }

    pub(super) fn stop(&mut self, log: &Log) -> Outcome<bool> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(false);
        }
        log.note(0, What::Paused(self.who()));
        send(Pid::from_child(&self.child), Signal::STOP)?;
        Ok(true)
    }

    pub(super) fn go_on(&mut self, log: &Log) -> Outcome<()> {
        if std::mem::replace(&mut self.stopped, false) {
            send(Pid::from_child(&self.child), Signal::CONT)?;
            log.note(0, What::Resumed(self.who()));
        }
        Ok(())
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Tells it to end after what it is doing.
    pub(super) fn dismiss(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Whether it has ended; an end in error is one of ours.
    pub(super) fn has_ended(&mut self) -> Outcome<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(format!("worker {} ended with {status}", self.who()).into()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
