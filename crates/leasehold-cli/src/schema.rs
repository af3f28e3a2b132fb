//! `leasehold schema`: the tables, for programs with migrations of their own.

use clap::Args;

use crate::exit::Failure;
use crate::print;

/// Options of `schema`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct SchemaArgs {
    /// Of which database: postgres, mysql or sqlite.
    database: String,
    /// Begins the names of the tables; the URL says the same with `?prefix=`.
    #[arg(long, value_name = "TEXT", default_value = leasehold::sql::PREFIX)]
    prefix: String,
}

const HELP: &str = "\
A client creates missing tables itself unless its URL says ?schema=check.

Examples:
  leasehold schema postgres | psql -1 mydb
  leasehold schema mysql --prefix locks_ | mariadb mydb";

pub(crate) fn schema(args: &SchemaArgs) -> Result<u8, Failure> {
    print(&leasehold::sql::schema(&args.database, &args.prefix)?)?;
    Ok(0)
}
