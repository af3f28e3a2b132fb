//! Real servers as values: a free port, a directory of their own, gone with the value or with the test process.

pub mod certificates;
pub mod consul;
pub mod database;
pub mod etcd;
pub mod flood;
pub mod mariadb;
pub mod nginx;
pub mod pgbouncer;
mod ports;
pub mod postgres;
pub mod redis;
pub mod redlock;
pub mod stalling;
pub mod wall;
pub mod web;
pub mod zookeeper;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::process::send;

pub use self::ports::free_port;

/// A directory for a server's files, readable by the user a server may run as.
///
/// # Panics
/// If it cannot be made.
pub fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("leasehold-")
        .tempdir()
        .expect("a directory")
}

/// A server process. It is killed when this value is dropped, and also when the test process ends in any other way.
#[derive(Debug)]
pub struct Running {
    guard: Child,
    server: Pid,
    log: PathBuf,
}

/// Starts the command, says its process id, and kills it when stdin ends. A word before that is from a test process that goes
/// on, and may start the server again where it was; without one the test process has ended, and no other needs the directory.
const GUARD: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 & echo $!; read -r word; kill -9 $! 2>/dev/null; wait
[ -n "$word" ] || { cd / && rm -rf "${log%/*}"; }"#;

impl Running {
    /// Starts a program of a Debian package; its output goes to a file in `dir`.
    ///
    /// # Panics
    /// If it is not installed.
    pub fn start(program: &str, package: &str, dir: &Path, args: &[String]) -> Self {
        assert!(
            installed(program),
            "{program} is not installed: run scripts/servers {package}"
        );
        let log = dir.join("output");
        let mut command = Command::new("sh");
        let _ = command
            .args(["-c", GUARD, "guard"])
            .arg(&log)
            .arg(program)
            .args(args);
        let spawned = command
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut guard = spawned.expect("sh starts");
        let mut line = String::new();
        let stdout = guard.stdout.take().expect("stdout is ours");
        let _ = BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a process id");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let server = pid.expect("a process id");
        Self { guard, server, log }
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) {
        let _ = send(self.server, signal);
    }

    /// Sends a signal to the server and to the processes it has started.
    pub fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        let pid = self.server.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            if let Some(child) = child.parse().ok().and_then(Pid::from_raw) {
                let _ = send(child, signal);
            }
        }
    }

    /// The server's output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether the server is there.
    pub fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.guard.stdin.take() {
            let _ = stdin.write_all(b"stop\n");
        }
        let _ = self.guard.wait();
    }
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_outlives_its_server_and_not_the_test_process() {
        let home = directory();
        let start = || Running::start("sleep", "tools", home.path(), &["1000".to_owned()]);
        drop(start());
        assert!(home.path().exists(), "the server may be started again");
        let mut running = start();
        // As when the process ends.
        drop(running.guard.stdin.take());
        let _ = running.guard.wait().expect("it ends");
        assert!(!home.path().exists() && !running.is_running());
    }
}
