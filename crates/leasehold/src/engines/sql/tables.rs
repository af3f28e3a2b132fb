//! The tables: their names, their version, and the statements that are not about one line.

use super::dialect::Dialect;
use crate::error::{Error, ErrorKind, Result, Step};

/// The version of the tables this build speaks.
pub(super) const VERSION: u32 = 2;

/// The prefix of the tables unless the URL says otherwise.
pub(crate) const PREFIX: &str = "leasehold_";

const PREFIX_MAX: usize = 40;

/// The tables of one prefix.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) dialect: Dialect,
    pub(super) meta: String,
    pub(super) line: String,
    pub(super) claim: String,
    pub(super) session: String,
    pub(super) mail: String,
    pub(super) eviction: String,
    pub(super) store: String,
    prefix: String,
}

impl Tables {
    pub(super) fn new(dialect: Dialect, prefix: &str) -> Result<Self> {
        check(prefix)?;
        let table = |name: &str| format!("{prefix}{name}");
        Ok(Self {
            dialect,
            meta: table("meta"),
            line: table("line"),
            claim: table("claim"),
            session: table("session"),
            mail: table("mail"),
            eviction: table("eviction"),
            store: table("store"),
            prefix: prefix.to_owned(),
        })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn all(&self) -> [&str; 7] {
        [
            &self.meta,
            &self.line,
            &self.claim,
            &self.session,
            &self.mail,
            &self.eviction,
            &self.store,
        ]
    }

    /// The schema that the prefix names.
    #[cfg(feature = "mysql")]
    pub(super) fn schema(&self) -> Option<&str> {
        self.prefix.split_once('.').map(|(schema, _)| schema)
    }

    /// The same, safe against others who do it at the same time, and without comments: not every client takes them.
    pub(super) fn create_at_once(&self) -> String {
        let create = self.create();
        let lines = create.lines();
        let bare: Vec<_> = lines
            .map(|line| line.split("--").next().unwrap_or("").trim_end())
            .filter(|line| !line.is_empty())
            .collect();
        let bare = bare.join("\n");
        let bare = bare.trim_end_matches(';');
        match self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                format!("BEGIN; SELECT pg_advisory_xact_lock(7811887326217331); {bare}; COMMIT")
            }
            #[cfg(feature = "mysql")]
            Dialect::Mysql => bare.to_owned(),
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => format!("BEGIN IMMEDIATE; {bare}; COMMIT"),
        }
    }

    /// The statements that create the tables.
    pub(super) fn create(&self) -> String {
        let schema = self.dialect.schema();
        let schema = schema.replace("{prefix}", &self.prefix);
        schema.replace("{version}", &VERSION.to_string())
    }
}

/// Lower-case letters, digits and underscores, perhaps after a schema's name and a dot: nothing to quote.
fn check(prefix: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut parts = prefix.split('.');
    let begins = |part: &str| part.starts_with(|c: char| plain(c) && !c.is_ascii_digit());
    let good = prefix.len() <= PREFIX_MAX
        && parts.clone().count() <= 2
        && parts.all(|part| part.chars().all(plain) && begins(part));
    if good {
        return Ok(());
    }
    let what = format!(
        "a prefix is 1 to {PREFIX_MAX} of a-z, 0-9 and _, perhaps after a schema and a dot: \
         tables without one could be those of another program"
    );
    Err(Error::new(ErrorKind::Config, Step::Connect, what))
}
