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
        Ok(Self::of(dialect, prefix))
    }

    fn of(dialect: Dialect, prefix: &str) -> Self {
        let table = |name: &str| format!("{prefix}{name}");
        Self {
            dialect,
            meta: table("meta"),
            line: table("line"),
            claim: table("claim"),
            session: table("session"),
            mail: table("mail"),
            eviction: table("eviction"),
            store: table("store"),
            prefix: prefix.to_owned(),
        }
    }

    /// Whether the prefix names no schema.
    #[cfg(feature = "postgres")]
    pub(super) fn is_unqualified(&self) -> bool {
        !self.prefix.contains('.')
    }

    /// The tables of the same prefix in a schema; none for a schema whose name could be taken for something else.
    #[cfg(feature = "postgres")]
    pub(super) fn in_schema(&self, schema: &str) -> Option<Self> {
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let prefix = format!("\"{schema}\".{}", self.prefix);
        (!schema.is_empty() && schema.chars().all(plain)).then(|| Self::of(self.dialect, &prefix))
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

    /// The same in two packets: the tables, safe against others who make them at the same time, and their first row.
    /// Without comments: not every client takes them.
    pub(super) fn create_in_two(&self) -> (String, String) {
        let schema = self.dialect.schema();
        let lines = schema.lines();
        let bare: Vec<_> = lines
            .map(|line| line.split("--").next().unwrap_or("").trim_end())
            .filter(|line| !line.is_empty())
            .collect();
        let bare = self.filled(&bare.join("\n"));
        let first_row = bare.rfind("INSERT").unwrap_or(bare.len());
        let (make, fill) = bare.split_at(first_row);
        let (make, fill) = (
            make.trim_end().trim_end_matches(';'),
            fill.trim_end_matches(';'),
        );
        let make = match self.dialect {
            // A table that is locked like this gets no trigger and no rule, and stays where it is.
            #[cfg(feature = "postgres")]
            Dialect::Postgres => format!(
                "{}; SELECT pg_advisory_xact_lock(7811887326217331); {make}; LOCK TABLE {} IN ROW EXCLUSIVE MODE",
                self.dialect.begin(),
                self.all().join(", ")
            ),
            // A table that is there is not replaced without the right to drop it.
            #[cfg(feature = "mysql")]
            Dialect::Mysql => make.to_owned(),
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => format!("BEGIN IMMEDIATE; {make}"),
        };
        (make, format!("{fill}; COMMIT"))
    }

    /// Begins a transaction in which no other table takes the place of one of these.
    pub(super) fn hold(&self) -> String {
        match self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => format!(
                "{}; LOCK TABLE {} IN ACCESS SHARE MODE",
                self.dialect.begin(),
                self.all().join(", ")
            ),
            #[cfg(feature = "mysql")]
            Dialect::Mysql => super::trust::count(self),
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => "BEGIN".to_owned(),
        }
    }

    /// Whether [`hold`](Self::hold) tells how many of the tables are there, where it cannot lock them.
    pub(super) fn counts(&self) -> bool {
        match self.dialect {
            #[cfg(feature = "mysql")]
            Dialect::Mysql => true,
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            _ => false,
        }
    }

    /// The statements that create the tables.
    pub(super) fn create(&self) -> String {
        self.filled(self.dialect.schema())
    }

    fn filled(&self, schema: &str) -> String {
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
