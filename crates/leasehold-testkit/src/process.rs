//! Real processes as values, killed when they are dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::poll::{PATIENCE, until};

/// A process that is told things line by line and answers line by line.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a command with its stdin and stdout in our hands.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            spawned.unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, lines) = channel();
        if let Some(stdout) = stdout {
            drop(std::thread::spawn(move || {
                let mut stdout = BufReader::new(stdout).lines().map_while(Result::ok);
                stdout.all(|line| tell.send(line).is_ok())
            }));
        }
        Self {
            child,
            stdin,
            lines,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says one line.
    ///
    /// # Panics
    /// If it has closed its stdin.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is ours");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .expect("it listens");
    }

    /// Its next line.
    ///
    /// # Panics
    /// If it says nothing for [`PATIENCE`] or ends.
    pub fn hear(&self) -> String {
        self.hear_within(PATIENCE)
    }

    /// Its next line, for what takes longer.
    ///
    /// # Panics
    /// If it says nothing for so long or ends.
    pub fn hear_within(&self, patience: Duration) -> String {
        match self.lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("process {} said nothing for {patience:?}", self.id())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("process {} ended without a word", self.id())
            }
        }
    }

    /// Says one line and hears one.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// The next line that it has printed and the test has not read.
    pub fn heard(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Sends a signal; after `STOP` the process stands still when this returns.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        send(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Kills it as `kill -9` does and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a signal to a process. After `STOP` it waits until every thread of the process stands still: until one of them is
/// scheduled and takes the signal, the others go on, on a busy machine for many milliseconds.
///
/// # Errors
/// If there is no such process.
///
/// # Panics
/// If it does not stop.
pub fn send(pid: Pid, signal: Signal) -> rustix::io::Result<()> {
    kill_process(pid, signal)?;
    if signal == Signal::STOP {
        until("every thread stands still", || moving(pid));
    }
    Ok(())
}

/// An error with the states of the threads of a process, if one of them may go on.
fn moving(pid: Pid) -> Result<(), String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let states: String = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .collect();
    // Stopped, or over.
    let still = states.chars().all(|state| "TtZX".contains(state));
    still.then_some(()).ok_or(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_stands_still_at_once() {
        let mut busy = Command::new("sh");
        let busy = Process::start(busy.args(["-c", "while :; do :; done"]));
        busy.signal(Signal::STOP);
        assert_eq!(moving(Pid::from_child(&busy.child)), Ok(()));
        busy.signal(Signal::CONT);
    }
}
