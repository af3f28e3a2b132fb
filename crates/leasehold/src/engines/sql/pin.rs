//! In which schema the tables are, settled once.
//!
//! PostgreSQL looks for a name without a schema anew in each statement. A role that may create in an earlier schema of the search
//! path, or one with the client's name, could put other tables before those that were looked at; so every statement
//! names the schema.

use std::sync::OnceLock;

use super::quick::Quick;
#[cfg(feature = "postgres")]
use super::rows::{cell, hex_bytes};
use super::tables::Tables;
#[cfg(feature = "postgres")]
use super::wire::What;
use super::wire::{Trouble, Wire};
use super::world::World;

/// The tables, and the statements that name them.
struct Named {
    tables: Tables,
    quick: Quick,
}

impl Named {
    /// `timed`: the time is bound as well.
    fn new(tables: Tables, timed: bool) -> Self {
        let now = tables.dialect.now().filter(|_| !timed);
        let quick = Quick::new(&tables, now);
        Self { tables, quick }
    }
}

/// The tables as the URL names them, and then as they were found.
pub(super) struct Pinned {
    asked: Named,
    found: OnceLock<Named>,
    timed: bool,
}

impl Pinned {
    pub(super) fn new(tables: Tables, timed: bool) -> Self {
        let (asked, found) = (Named::new(tables, timed), OnceLock::new());
        Self {
            asked,
            found,
            timed,
        }
    }

    fn named(&self) -> &Named {
        self.found.get().unwrap_or(&self.asked)
    }
}

impl World {
    pub(super) fn tables(&self) -> &Tables {
        &self.pinned.named().tables
    }

    pub(super) fn quick(&self) -> &Quick {
        &self.pinned.named().quick
    }

    /// Whether the tables were looked at, and so their schema is settled.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.found.get().is_some()
    }

    /// Settles the schema: the tables in it were looked at.
    pub(super) fn pin(&self, tables: Tables) {
        let Pinned { found, timed, .. } = &self.pinned;
        let _ = found.get_or_init(|| Named::new(tables, *timed));
    }

    /// The tables with the schema that their names lead to now, unless it is settled.
    pub(super) async fn locate(&self, wire: &mut Wire) -> Result<Tables, Trouble> {
        let tables = self.tables().clone();
        #[cfg(feature = "postgres")]
        if !self.is_pinned() && tables.is_unqualified() && tables.dialect.word() == "postgres" {
            return in_schema(&tables, wire).await;
        }
        let _ = wire;
        Ok(tables)
    }
}

/// The schema in which the tables are, or the one in which they would be made.
#[cfg(feature = "postgres")]
async fn in_schema(tables: &Tables, wire: &mut Wire) -> Result<Tables, Trouble> {
    let look = format!(
        "SELECT encode(convert_to(coalesce((SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = \
           (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass('{}'::text)::oid)), \
         current_schema())::text, 'UTF8'::name), 'hex'::text)",
        tables.meta
    );
    let rows = wire.run(&look).await?;
    let row = rows.first().and_then(|rows| rows.first());
    let Ok(schema) = cell(row.map_or(&[][..], Vec::as_slice), 0) else {
        let what = "no schema of the search path exists: name one, as in prefix=locks.leasehold_";
        return Err(Trouble::new(What::Unsuitable, what));
    };
    let schema = String::from_utf8_lossy(&hex_bytes(schema)?).into_owned();
    tables.in_schema(&schema).ok_or_else(|| {
        let what = "the first schema of the search path has a name with more than letters, digits, _ and - in it: \
             name another, as in prefix=locks.leasehold_";
        Trouble::new(What::Unsuitable, what)
    })
}
