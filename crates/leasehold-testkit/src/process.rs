//! Real processes as values, killed when they are dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::poll::PATIENCE;

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

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is there");
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
