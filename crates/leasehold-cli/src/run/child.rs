//! The command as a process: its group, its signals, its end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use leasehold::{Fence, Name};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, getppid, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::exit::{self, Exit, Failure};
use crate::group::{self, Left};
use crate::sys;
use crate::tty::{self, Terminal};
use crate::watchdog::Watchdog;

/// The program to run, and additions to its environment.
pub(super) struct Program {
    pub(super) words: Vec<OsString>,
    pub(super) env: Vec<(&'static str, OsString)>,
}

impl Program {
    pub(super) fn command(&self, name: &Name, fence: Fence) -> Command {
        let mut command = Command::new(&self.words[0]);
        let _ = command
            .args(&self.words[1..])
            .env("LEASEHOLD_NAME", name.as_str())
            .env("LEASEHOLD_FENCE", fence.to_string())
            .envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }
}

/// The failure of a command that could not be run, as shells count.
pub(super) fn not_run(word: &OsStr, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    };
    let word = word.to_string_lossy();
    let hint = match exit == Exit::NotFound && word.contains([' ', '|', ';', '&', '>', '$']) {
        true => ". A line for a shell needs one: leasehold run NAME -- sh -c 'LINE'",
        false => "",
    };
    Failure::new(exit, format!("{word}: {error}{hint}"))
}

/// The running command, leader of a process group of its own.
pub(super) struct Child {
    pid: Pid,
    changes: unix::Signal,
    terminal: Option<Terminal>,
}

/// A change of the child.
pub(super) enum Change {
    /// It ended, with this exit code.
    Ended(u8),
    /// It was stopped, by this signal.
    Stopped(Option<i32>),
}

impl Child {
    /// Starts it. From its first step on the watchdog knows its group, and it dies with us.
    pub(super) fn start(mut command: Command, watchdog: &Watchdog) -> io::Result<Self> {
        // Before the child: its end must not be missed.
        let changes = signal(SignalKind::child())?;
        let mut terminal = Terminal::controlling();
        let lent = terminal.as_mut().and_then(Terminal::lend);
        let runner = getpid();
        let introduce = watchdog.introduction()?;
        sys::before_exec(&mut command, move || {
            let child = getpid();
            introduce(child)?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The runner may have died before that was in force.
            if getppid() != Some(runner) {
                return Err(io::Error::from(rustix::io::Errno::SRCH));
            }
            if let Some(tty) = &lent {
                let _ = tty::hand(tty, child);
            }
            Ok(())
        });
        let child = command.process_group(0).spawn().inspect_err(|_| {
            if let Some(terminal) = &terminal {
                terminal.reclaim();
            }
        })?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            changes,
            terminal,
        })
    }

    /// Waits until it ends or stops. It stays a zombie, so that its group's number stays its own. Cancel-safe.
    pub(super) async fn changed(&mut self) -> io::Result<Change> {
        let either = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        loop {
            match self.look(either | WaitIdOptions::NOWAIT)? {
                Some(status) if status.stopped() => {
                    // Taken in, so that it is not seen twice. Not found if it has ended since: that is seen next.
                    let _ = self.look(WaitIdOptions::STOPPED);
                    return Ok(Change::Stopped(status.stopping_signal()));
                }
                Some(status) => return Ok(Change::Ended(code(&status))),
                None => {}
            }
            let _ = self.changes.recv().await;
        }
    }

    fn look(&self, what: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
        Ok(waitid(WaitId::Pid(self.pid), what | WaitIdOptions::NOHANG)?)
    }

    /// To the whole group. One that is gone needs none; one that runs as another user may not get it, which is said.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.reached(signal) {
            let number = signal.as_raw();
            crate::say(&format!(
                "signal {number} does not reach the command: it runs as another user"
            ));
        }
    }

    /// False if no process of the group may be signalled by this user.
    pub(super) fn reached(&self, signal: Signal) -> bool {
        kill_process_group(self.pid, signal) != Err(Errno::PERM)
    }

    /// It was stopped. Without a terminal the process that stopped it will also continue it.
    pub(super) fn stopped(&mut self, by: Option<i32>) {
        if let Some(terminal) = &mut self.terminal {
            terminal.stopped(self.pid, by);
        }
    }

    /// We were continued, and so is it.
    pub(super) fn resume(&self) {
        match &self.terminal {
            Some(terminal) => terminal.resume(self.pid),
            None => self.signal(Signal::CONT),
        }
    }

    /// The processes of the group that still run.
    pub(super) fn left(&self) -> Left {
        group::left(self.pid)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.pid);
        }
    }
}

fn code(status: &WaitIdStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (_, Some(signal)) => exit::of_signal(signal),
        _ => Exit::Bug.code(),
    }
}
