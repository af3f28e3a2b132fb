//! MariaDB and MySQL: where the server is, and how it is reached.

mod wire;

use async_trait::async_trait;
use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::dialect::Dialect;
use super::tls::Security;
use super::wire::{Connect, Heard, Link, Listening, Rows, Trouble, What};
use crate::engine::{Params, Url};
use crate::error::{Error, ErrorKind, Result, Step};

/// A server.
pub(super) struct Server {
    opts: Opts,
    /// Host and port.
    shown: String,
}

/// The longest packet. The server's own word for it is not asked: a row of any length could follow.
const LONGEST: usize = 16 << 20;

/// No gap locks, times without summer time, assignments one after the other, and no long wait for a row.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', innodb_lock_wait_timeout = 4, autocommit = 1";

impl Server {
    pub(super) fn at(url: &Url, params: &mut Params) -> Result<Self> {
        let bad = |what: &str| Error::new(ErrorKind::Config, Step::Connect, what).on("mysql");
        let [host] = &url.addresses(3306)?[..] else {
            return Err(bad("write mysql://USER@HOST/DATABASE, with one host"));
        };
        let database = url.path().trim_start_matches('/');
        if database.is_empty() {
            return Err(bad("the URL names no database: mysql://USER@HOST/DATABASE"));
        }
        if url.user().is_none() {
            return Err(bad("the URL names no user: mysql://USER@HOST/DATABASE"));
        }
        let shown = format!("{}:{}", host.name, host.port);
        let opts = OptsBuilder::default()
            .ip_or_hostname(host.name.as_str())
            .tcp_port(host.port)
            .user(url.user())
            .pass(url.password())
            .db_name(Some(database))
            .tcp_nodelay(true)
            .max_allowed_packet(Some(LONGEST))
            .prefer_socket(false);
        let opts = match Security::of(url, params)? {
            Security::Off => opts,
            Security::Verified(roots) => {
                let own = roots.is_some();
                let roots = roots.into_iter().map(Into::into);
                let ssl = SslOpts::default().with_root_certs(roots.collect());
                opts.ssl_opts(ssl.with_disable_built_in_roots(own))
            }
        };
        Ok(Self {
            opts: opts.into(),
            shown,
        })
    }
}

#[async_trait]
impl Connect for Server {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn place(&self) -> String {
        self.shown.clone()
    }

    async fn connect(&self) -> Result<Box<dyn Link>, Trouble> {
        let opened = wire::Connection::open(&self.opts).await;
        let mut link = opened.map_err(|trouble| trouble.from(&self.shown))?;
        let rows = link.run("SELECT @@version, @@read_only").await?;
        let mariadb = suitable(&rows)?;
        let _ = link.run(SETTINGS).await?;
        if mariadb {
            // A client that vanished in a transaction must not keep its rows. MySQL has no such setting.
            let _ = link.run("SET SESSION idle_transaction_timeout = 1").await?;
        }
        Ok(Box::new(link))
    }

    async fn listen(&self, _: &str, _: Heard) -> Result<Option<Listening>, Trouble> {
        Ok(None)
    }
}

/// Whether it is MariaDB.
fn suitable(rows: &[Rows]) -> Result<bool, Trouble> {
    let row = rows.first().and_then(|rows| rows.first());
    let row = row.map_or(&[][..], Vec::as_slice);
    let version = super::rows::cell(row, 0)?;
    let mariadb = version.contains("MariaDB");
    let mut numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let unsuitable = |what: String| Err(Trouble::new(What::Unsuitable, what));
    if number < if mariadb { (10, 6) } else { (8, 0) } {
        return unsuitable(format!(
            "MariaDB 10.6 or MySQL 8 or newer is needed; this is {version}"
        ));
    }
    if super::rows::number(row, 1)? != 0 {
        return unsuitable("this server is read-only: connect to the primary".to_owned());
    }
    Ok(mariadb)
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_certificates_replaces_the_public_ones() {
        for (options, replaced) in [
            ("sslrootcert=/own.crt", true),
            ("sslmode=verify-full", false),
        ] {
            let url = Url::parse(&format!("mysql://u@host/d?{options}")).unwrap();
            let server = Server::at(&url, &mut url.params()).unwrap();
            let ssl = server.opts.ssl_opts().expect("TLS");
            assert_eq!(ssl.disable_built_in_roots(), replaced, "{options}");
        }
    }
}
