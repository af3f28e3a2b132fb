//! A Redis server that stands still at times until a millisecond is over: what one step of a call finds may have ended by the
//! next. On a busy machine that happens too, only more rarely.

use std::process::Command;

use tempfile::TempDir;

use super::{Running, directory, free_port};
use crate::poll::until;

/// One such server, which keeps nothing on disk.
#[derive(Debug)]
pub struct Stalling {
    /// Where it listens on the loopback address.
    pub port: u16,
    _running: Running,
    _home: TempDir,
}

impl Stalling {
    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// If there is no C compiler, or no `redis-server`.
    pub fn start() -> Self {
        let (home, port) = (directory(), free_port());
        let (source, library) = (home.path().join("stalls.c"), home.path().join("stalls.so"));
        std::fs::write(&source, include_str!("stalls.c")).expect("writable");
        let mut cc = Command::new("cc");
        let _ = cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library);
        let done = cc.arg(&source).output();
        let done = done.expect("a C compiler is not installed: install gcc");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        let preload = format!("LD_PRELOAD={}", library.display());
        let port_text = port.to_string();
        let words = [&preload, "redis-server", "--port", &port_text];
        let settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let args = words.iter().chain(&settings).map(|&word| word.to_owned());
        let running = Running::start("env", "redis", home.path(), &args.collect::<Vec<_>>());
        let server = Self {
            port,
            _running: running,
            _home: home,
        };
        until("the server answers", || {
            let said = server.cli(&["PING"]);
            (said.trim() == "PONG").then_some(()).ok_or(said)
        });
        server
    }

    /// A command, and what `redis-cli` prints of the answer.
    ///
    /// # Panics
    /// If `redis-cli` is not installed.
    pub fn cli(&self, args: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        let _ = cli.args(["--raw", "-p", &self.port.to_string()]).args(args);
        let output = cli.output().expect("redis-cli runs");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }
}
