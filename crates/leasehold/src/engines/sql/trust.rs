//! Whose tables these are, looked at before the first statement that names them.
//!
//! A role that may create in the schema can make the tables first, with code of its own in a trigger, a rule or a view.
//! On PostgreSQL that code would run with the rights of the client that uses the tables.

use super::dialect::Dialect;
use super::rows::{cell, hex_bytes};
use super::tables::Tables;
use super::wire::{Trouble, What, Wire};

/// Refuses tables that a role may have planted.
pub(super) async fn check(tables: &Tables, wire: &mut Wire) -> Result<(), Trouble> {
    let rows = wire.run(&suspects(tables)).await?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else {
        return Ok(());
    };
    let text = |at: usize| -> Result<String, Trouble> {
        let bytes = hex_bytes(cell(row, at)?)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (table, why) = (text(0)?, text(1)?);
    let what = format!(
        "the table {table} {why}: its code may run with the rights of this client, so nothing was done with it. {}",
        advice(tables.dialect)
    );
    Err(Trouble::new(What::Planted, what))
}

const fn advice(dialect: Dialect) -> &'static str {
    match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => {
            "Give Leasehold a schema in which no other role may create (CREATE SCHEMA locks AUTHORIZATION this_role) \
             and say prefix=locks.leasehold_ in the URL"
        }
        #[cfg(feature = "mysql")]
        Dialect::Mysql => {
            "Remove it, or give Leasehold a database in which no other user may create, and name it in the URL"
        }
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => "Remove it, or give Leasehold a file of its own",
    }
}

/// A query for what is wrong with the tables: the table and the reason, in hexadecimal; no row if nothing is.
fn suspects(tables: &Tables) -> String {
    let names = tables.all();
    let listed = |name: &dyn Fn(&str) -> String| -> String {
        let names: Vec<_> = names.iter().map(|table| name(table)).collect();
        names.join(", ")
    };
    match tables.dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => postgres(&listed(&|table| format!("to_regclass('{table}'::text)"))),
        #[cfg(feature = "mysql")]
        Dialect::Mysql => mysql(
            &listed(&|table| format!("'{}'", bare(table))),
            &schema(tables),
        ),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => sqlite(&listed(&|table| format!("'{}'", bare(table)))),
    }
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
fn bare(table: &str) -> &str {
    table.rsplit('.').next().unwrap_or(table)
}

#[cfg(feature = "mysql")]
fn schema(tables: &Tables) -> String {
    match tables.schema() {
        Some(schema) => format!("'{schema}'"),
        None => "DATABASE()".to_owned(),
    }
}

/// How many of the tables are there, and are tables.
#[cfg(feature = "mysql")]
pub(super) fn count(tables: &Tables) -> String {
    let names = tables.all().map(|table| format!("'{}'", bare(table)));
    format!(
        "SELECT count(*) FROM information_schema.tables \
         WHERE table_schema = {} AND table_name IN ({}) AND table_type = 'BASE TABLE'",
        schema(tables),
        names.join(", ")
    )
}

/// Every argument has exactly the type of the system's own function: for any other, a function that another role made in the
/// search path fits better and is called instead.
///
/// Trusted owners: this role and the roles it is a member of, the database's owner, and superusers, who need no
/// planted table. `pg_has_role` calls a superuser a member of every role, so memberships are followed here.
#[cfg(feature = "postgres")]
fn postgres(tables: &str) -> String {
    let hex = |text: &str| format!("encode(convert_to({text}, 'UTF8'::name), 'hex'::text)");
    let why = "CASE \
         WHEN relkind <> 'r'::\"char\" THEN 'is a view or a foreign table'::text \
         WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = t.oid AND NOT tgisinternal) \
           THEN 'has a trigger'::text \
         WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = t.oid) THEN 'has a rule'::text \
         WHEN relowner <> ALL (ARRAY(SELECT role FROM trusted)) \
           THEN 'belongs to the role '::text || pg_get_userbyid(relowner)::text || \
             ', and this client connects as '::text || current_user::text || \
             ', which is not a member of that role'::text END";
    format!(
        "WITH RECURSIVE mine(role) AS ( \
           SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user \
           UNION SELECT roleid FROM pg_catalog.pg_auth_members JOIN mine ON member = role), \
         trusted(role) AS (SELECT role FROM mine \
           UNION SELECT datdba FROM pg_catalog.pg_database WHERE datname = current_database() \
           UNION SELECT oid FROM pg_catalog.pg_roles WHERE rolsuper), \
         found AS (SELECT relname, {why} AS why FROM pg_catalog.pg_class AS t \
           WHERE oid = ANY (ARRAY[{tables}]::oid[])) \
         SELECT {}, {} FROM found WHERE why IS NOT NULL LIMIT 1",
        hex("relname::text"),
        hex("why"),
    )
}

/// Tables have no owner here, and a trigger runs with the rights of the user who defined it. A view may run with the
/// rights of the client. Triggers are seen by users with the right TRIGGER alone.
#[cfg(feature = "mysql")]
fn mysql(tables: &str, schema: &str) -> String {
    format!(
        "SELECT hex(table_name), hex('is a view') FROM information_schema.tables \
         WHERE table_schema = {schema} AND table_name IN ({tables}) AND table_type <> 'BASE TABLE' \
         UNION ALL SELECT hex(event_object_table), hex('has a trigger') FROM information_schema.triggers \
         WHERE event_object_schema = {schema} AND event_object_table IN ({tables}) LIMIT 1"
    )
}

#[cfg(feature = "sqlite")]
fn sqlite(tables: &str) -> String {
    format!(
        "SELECT hex(tbl_name), hex('is a view or has a trigger') FROM sqlite_master \
         WHERE type IN ('trigger', 'view') AND tbl_name IN ({tables}) LIMIT 1"
    )
}
