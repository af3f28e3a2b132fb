//! MariaDB: one server.

use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::postgres::{as_user, give, run};
use super::{Running, directory, free_port};
use crate::poll::until;

/// One `mariadbd`.
#[derive(Debug)]
pub struct MariaDb {
    home: TempDir,
    /// Where it listens on the loopback address.
    pub port: u16,
    settings: Vec<String>,
    /// None while it is stopped.
    running: Option<Running>,
}

impl MariaDb {
    /// A server that does not wait for its disk.
    pub fn start() -> Self {
        Self::with(&["--innodb-flush-log-at-trx-commit=2"])
    }

    /// A server that has every commit on disk before it answers.
    pub fn durable() -> Self {
        Self::with(&[])
    }

    /// A server with these settings besides the usual ones.
    pub fn with(settings: &[&str]) -> Self {
        let (home, port) = (directory(), free_port());
        give(home.path(), "mysql");
        let data = format!("--datadir={}/data", home.path().display());
        let mut install = as_user("mysql");
        let words = [
            "mariadb-install-db",
            "--no-defaults",
            &data,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ];
        install.extend(words.map(str::to_owned));
        let _ = run(&install);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self {
            home,
            port,
            settings,
            running: None,
        };
        server.restart();
        let _ = server.sql("CREATE DATABASE IF NOT EXISTS lab");
        server
    }

    /// Starts it again, with what is on its disk, and waits until it answers.
    pub fn restart(&mut self) {
        drop(self.running.take());
        let dir = self.home.path().display().to_string();
        let mut words = as_user("mysql");
        words.extend([
            "mariadbd".to_owned(),
            "--no-defaults".to_owned(),
            format!("--datadir={dir}/data"),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--socket={dir}/socket"),
            "--max-connections=400".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
        ]);
        words.extend(self.settings.iter().cloned());
        let server = Running::start(&words[0], "mariadb", self.home.path(), &words[1..]);
        self.running = Some(server);
        until("the server answers", || match self.try_sql("SELECT 1") {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error}; it said: {}", self.output())),
        });
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Stops it, as a machine that hangs, or lets it go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal(signal);
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
        format!("mysql://root@127.0.0.1:{}/lab", self.port)
    }

    /// Runs a statement; answers with what it printed.
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
    /// What the client said.
    ///
    /// # Panics
    /// If the client is not installed.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        let mut client = Command::new("mariadb");
        let _ = client.args([
            "--no-defaults",
            "-h",
            "127.0.0.1",
            "-P",
            &self.port.to_string(),
        ]);
        let _ = client.args(["-u", "root", "-N", "-B", "-e", statement]);
        let done = client
            .output()
            .expect("mariadb is not installed: run scripts/servers mariadb");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match done.status.success() {
            true => Ok(text(&done.stdout)),
            false => Err(text(&done.stderr)),
        }
    }
}
