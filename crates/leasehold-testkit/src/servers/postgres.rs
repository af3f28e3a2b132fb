//! PostgreSQL: one server.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Running, directory, free_port};
use crate::poll::until;

/// One `postgres`.
#[derive(Debug)]
pub struct Postgres {
    home: TempDir,
    /// Where it listens on the loopback address.
    pub port: u16,
    settings: Vec<String>,
    /// None while it is stopped.
    running: Option<Running>,
}

/// The words that run a program as the user of a package, if we are root: servers refuse to run as root.
pub(super) fn as_user(user: &str) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let words = [
        "setpriv",
        "--reuid",
        user,
        "--regid",
        user,
        "--clear-groups",
    ];
    words.map(str::to_owned).into()
}

/// Gives a directory to the user that its server runs as.
pub(super) fn give(dir: &Path, user: &str) {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown")
            .arg("-R")
            .arg(format!("{user}:{user}"))
            .arg(dir)
            .status();
        assert!(
            given.is_ok_and(|status| status.success()),
            "{user} has no user of its own"
        );
    }
}

/// Runs a program to its end.
pub(super) fn run(words: &[String]) -> String {
    let done = Command::new(&words[0]).args(&words[1..]).output();
    let done = done.unwrap_or_else(|error| panic!("{} does not run: {error}", words[0]));
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(done.status.success(), "{words:?}: {text}");
    text
}

impl Postgres {
    /// A server that does not wait for its disk.
    pub fn start() -> Self {
        Self::with(&["fsync=off"])
    }

    /// A server that has every commit on disk before it answers.
    pub fn durable() -> Self {
        Self::with(&[])
    }

    /// A server with these settings besides the usual ones.
    pub fn with(settings: &[&str]) -> Self {
        let (home, port) = (directory(), free_port());
        give(home.path(), "postgres");
        let data = home.path().join("data").display().to_string();
        let mut init = as_user("postgres");
        let words = [
            "initdb",
            "-D",
            &data,
            "-U",
            "lab",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ];
        init.extend(words.map(str::to_owned));
        let _ = run(&init);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self {
            home,
            port,
            settings,
            running: None,
        };
        server.restart();
        server
    }

    /// Starts it again, with what is on its disk, and waits until it answers.
    pub fn restart(&mut self) {
        let dir = self.home.path().display().to_string();
        let mut words = as_user("postgres");
        let usual = [
            "postgres".to_owned(),
            "-D".to_owned(),
            format!("{dir}/data"),
            "-p".to_owned(),
            self.port.to_string(),
        ];
        words.extend(usual);
        let usual = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={dir}"),
            "max_connections=400".to_owned(),
        ];
        for setting in usual.iter().chain(&self.settings) {
            words.extend(["-c".to_owned(), setting.clone()]);
        }
        until("the server answers", || {
            // The processes of a killed server may still be leaving; then it does not start yet.
            if !self.running.as_ref().is_some_and(Running::is_running) {
                let server = Running::start(&words[0], "postgres", self.home.path(), &words[1..]);
                self.running = Some(server);
            }
            match self.try_sql("SELECT 1") {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error}; it said: {}", self.output())),
            }
        });
    }

    /// Starts it as a replica that follows nobody: it can only be read.
    ///
    /// # Panics
    /// If its directory cannot be written.
    pub fn standby(&mut self) {
        let signal = self.home.path().join("data/standby.signal");
        std::fs::write(&signal, "").expect("writable");
        give(&signal, "postgres");
        self.restart();
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Stops its main process, or lets it go on: nobody can connect meanwhile.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Stops all its processes, as a machine that hangs, or lets them go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal_all(signal);
    }

    /// What it said so far.
    pub fn output(&self) -> String {
        self.running
            .as_ref()
            .map(Running::output)
            .unwrap_or_default()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("postgres://lab@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs a statement with `psql`; answers with what it printed.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// What `psql` said.
    ///
    /// # Panics
    /// If `psql` is not installed.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        let mut psql = Command::new("psql");
        let _ = psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        let _ = psql.args(["-U", "lab", "-d", "postgres", "-XAtq", "-c", statement]);
        let done = psql
            .output()
            .expect("psql is not installed: run scripts/servers postgres");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match done.status.success() {
            true => Ok(text(&done.stdout)),
            false => Err(text(&done.stderr)),
        }
    }
}
