//! The whole contract on each database.

mod mysql;
mod postgres;
mod sqlite;
