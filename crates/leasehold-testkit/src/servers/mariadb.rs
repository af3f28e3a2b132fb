//! MariaDB: one server.

use std::ops::{Deref, DerefMut};
use std::process::Command;

use super::database::{Host, Setup, printed};

/// One `mariadbd`.
#[derive(Debug)]
pub struct MariaDb {
    host: Host,
    settings: Vec<String>,
}

impl Deref for MariaDb {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for MariaDb {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
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
        Self::set_up(&Setup {
            settings,
            ..Setup::default()
        })
    }

    /// A server with more than settings.
    pub fn set_up(setup: &Setup<'_>) -> Self {
        let host = Host::new("mysql", setup, ask);
        let home = host.home().display().to_string();
        let data = format!("--datadir={}", host.data().display());
        // Only what is needed: a small disk is soon full.
        let small = "--innodb-log-file-size=8M";
        // Servers that share a directory for temporary tables remove each other's.
        let temporary = format!("--tmpdir={home}");
        let auth = "--auth-root-authentication-method=normal";
        host.run(&[
            "mariadb-install-db",
            "--no-defaults",
            &data,
            &temporary,
            small,
            auth,
            "--skip-test-db",
        ]);
        let mut settings = vec![
            data,
            temporary,
            format!("--port={}", host.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--socket={home}/socket"),
            "--max-connections=400".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
        ];
        if setup.disk.is_some() {
            settings.push(small.to_owned());
        }
        if setup.tls {
            settings.extend([
                format!("--ssl-cert={home}/server.crt"),
                format!("--ssl-key={home}/server.key"),
            ]);
        }
        settings.extend(setup.settings.iter().map(|&setting| setting.to_owned()));
        let mut server = Self { host, settings };
        server.restart();
        let _ = server.sql("CREATE DATABASE IF NOT EXISTS lab");
        server
    }

    /// Starts it again, with what is on its disk, and waits until it answers.
    pub fn restart(&mut self) {
        let mut words = ["mariadbd", "--no-defaults"].map(str::to_owned).to_vec();
        words.extend(self.settings.iter().cloned());
        self.host.start(&words);
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_by(self.host.port)
    }

    /// Its URL by another port, of something between.
    pub fn url_by(&self, port: u16) -> String {
        format!("mysql://root@127.0.0.1:{port}/lab{}", self.host.options())
    }

    /// How many deadlocks it has met.
    pub fn deadlocks(&self) -> String {
        self.sql(
            "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'",
        )
    }
}

fn ask(port: u16, statement: &str) -> Result<String, String> {
    let mut client = Command::new("mariadb");
    let _ = client.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port.to_string()]);
    let _ = client.args(["-u", "root", "-N", "-B", "-e", statement]);
    printed(client, "mariadb")
}
