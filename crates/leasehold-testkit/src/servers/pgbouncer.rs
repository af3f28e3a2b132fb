//! pgbouncer: a pooler before a PostgreSQL server.

use tempfile::TempDir;

use super::database::{as_user, give};
use super::postgres::Postgres;
use super::{Running, directory, free_port};
use crate::poll::until;

/// One `pgbouncer` in transaction mode.
#[derive(Debug)]
pub struct PgBouncer {
    _home: TempDir,
    port: u16,
    running: Running,
}

impl PgBouncer {
    /// A pooler of so many connections before a server.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn before(server: &Postgres, connections: u32) -> Self {
        let (home, port) = (directory(), free_port());
        let dir = home.path().display();
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres user=lab\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {dir}\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 500\n",
            server.port
        );
        let file = home.path().join("pgbouncer.ini");
        std::fs::write(&file, config).expect("writable");
        give(home.path(), "postgres");
        let mut words = as_user("postgres");
        words.extend(["pgbouncer".to_owned(), file.display().to_string()]);
        let running = Running::start(&words[0], "postgres", home.path(), &words[1..]);
        until("the pooler listens", || {
            let reached = std::net::TcpStream::connect(("127.0.0.1", port));
            reached
                .map(drop)
                .map_err(|error| format!("{error}; it said: {}", running.output()))
        });
        Self {
            _home: home,
            port,
            running,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("postgres://lab@127.0.0.1:{}/postgres", self.port)
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.running.output()
    }
}
