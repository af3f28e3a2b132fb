//! Prints the table of guarantees of every engine of this build.

use leasehold::engine::Guarantees;

/// One URL of each kind of deployment; nothing is reached.
const URLS: &[&str] = &[
    "memory:",
    "file:",
    "redis://localhost",
    "redis+sentinel://localhost/main",
    "redis://localhost?replicas=1",
    "redlock://h1,h2,h3",
    "postgres://app@localhost/db",
    "postgres://app@localhost/db?commit=async",
    "mysql://app@localhost/db",
    "sqlite:locks.db",
    "zookeeper://localhost",
    "etcd://localhost",
    "consul://localhost",
];

fn main() {
    println!("{}", Guarantees::table_header());
    for guarantees in URLS
        .iter()
        .filter_map(|url| leasehold::guarantees(url).ok())
    {
        println!("{}", guarantees.table_row());
    }
}
