//! PostgreSQL: one server.

use std::ops::{Deref, DerefMut};
use std::process::Command;

use super::database::{Host, Setup, give, printed};

/// One `postgres`.
#[derive(Debug)]
pub struct Postgres {
    host: Host,
    settings: Vec<String>,
}

impl Deref for Postgres {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for Postgres {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
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
        Self::set_up(&Setup {
            settings,
            ..Setup::default()
        })
    }

    /// A server with more than settings.
    pub fn set_up(setup: &Setup<'_>) -> Self {
        let host = Host::new("postgres", setup, ask);
        let (data, home) = (
            host.data().display().to_string(),
            host.home().display().to_string(),
        );
        let mut init = vec!["initdb", "-D", &data, "-U", "lab", "-A", "trust"];
        init.extend(["-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"]);
        host.run(&init);
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={home}"),
            "max_connections=400".to_owned(),
        ];
        if setup.tls {
            settings.extend([
                "ssl=on".to_owned(),
                format!("ssl_cert_file={home}/server.crt"),
                format!("ssl_key_file={home}/server.key"),
            ]);
        }
        settings.extend(setup.settings.iter().map(|&setting| setting.to_owned()));
        let mut server = Self { host, settings };
        server.restart();
        server
    }

    /// Starts it again, with what is on its disk, and waits until it answers.
    pub fn restart(&mut self) {
        let data = self.host.data().display().to_string();
        let mut words = ["postgres", "-D", &data, "-p"].map(str::to_owned).to_vec();
        words.push(self.port.to_string());
        for setting in &self.settings {
            words.extend(["-c".to_owned(), setting.clone()]);
        }
        self.host.start(&words);
    }

    /// Starts it as a replica without a primary: it can only be read.
    ///
    /// # Panics
    /// If its directory cannot be written.
    pub fn standby(&mut self) {
        let signal = self.host.data().join("standby.signal");
        std::fs::write(&signal, "").expect("writable");
        give(&signal, "postgres");
        self.restart();
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_by(self.host.port)
    }

    /// Its URL by another port, of something between.
    pub fn url_by(&self, port: u16) -> String {
        let options = self.host.options();
        format!("postgres://lab@127.0.0.1:{port}/postgres{options}")
    }

    /// How many deadlocks it has met.
    pub fn deadlocks(&self) -> String {
        self.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
    }
}

fn ask(port: u16, statement: &str) -> Result<String, String> {
    let mut psql = Command::new("psql");
    let _ = psql.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    let _ = psql.args(["-U", "lab", "-d", "postgres", "-XAtq", "-c", statement]);
    printed(psql, "postgres")
}
