//! The ways side by side: what each promises, from the guarantees of the engines, and how fast it was, from the last table.

use leasehold::{Fault, Guarantees, Verdict};

use super::rows::{OVERRUN, RIGHT, Row, WRONG};

/// An engine that the demo waits on: its name, and a URL that its guarantees are asked by. Nothing is reached.
pub const ENGINES: [(&str, &str); 7] = [
    ("Redis", "redis://localhost"),
    ("Redlock", "redlock://h1,h2,h3"),
    ("MariaDB", "mysql://app@localhost/db"),
    ("PostgreSQL", "postgres://app@localhost/db"),
    ("ZooKeeper", "zookeeper://localhost"),
    ("etcd", "etcd://localhost"),
    ("Consul", "consul://localhost"),
];

/// The name in the table of a way that waits in line on an engine.
pub fn in_line(engine: &str) -> String {
    format!("Leasehold in line, {engine}")
}

const HEAD: &str = "| way | exclusion | locked for ever after a crash? | re-entrant | order | sold per second (p99) | availability |\n|---|---|---|---|---|--:|---|\n";

/// A way that the guarantees say nothing of: its name, and the cells but for the speed.
type ByHand = (&'static str, [&'static str; 5]);

const BY_HAND: [ByHand; 7] = [
    (WRONG[0].name, ["none", "–", "–", "–", "–"]),
    (
        WRONG[1].name,
        [
            "inside one process: **two instances have two locks**",
            "no: it ends with the process",
            "no (Java's is)",
            "as the runtime has it",
            "as the process",
        ],
    ),
    (
        "a row with a unique key, inserted and deleted",
        [
            "yes, while it is there",
            "**yes**: a holder that dies leaves the row",
            "no",
            "any: callers ask again",
            "as the database",
        ],
    ),
    (
        RIGHT[0].name,
        [
            "until the expiry, and then **two hold, untold**; no fence",
            "until its expiry (stages 1 and 2: **for ever**)",
            "no",
            "any: callers ask again",
            "as one Redis server; a failover loses locks",
        ],
    ),
    (
        OVERRUN.name,
        [
            "**none**, from the expiry on",
            "until its expiry",
            "no",
            "any: callers ask again",
            "as one Redis server; a failover loses locks",
        ],
    ),
    (
        RIGHT[2].name,
        [
            "of effects, always (L3)",
            "no: it ends with the connection, and the database breaks deadlocks",
            "yes, in its transaction",
            "as the database has it",
            "as the database",
        ],
    ),
    (
        RIGHT[3].name,
        [
            "of effects, always (L3)",
            "no: nothing is held",
            "–",
            "none: the faster one wins",
            "as the database",
        ],
    ),
];

/// The table of the page.
///
/// # Panics
/// If this build lacks an engine.
pub fn comparison(rows: &[Row]) -> String {
    let mut table = HEAD.to_owned();
    for (name, [exclusion, stays, again, order, availability]) in BY_HAND {
        let speed = speed(rows, name);
        table += &format!(
            "| {name} | {exclusion} | {stays} | {again} | {order} | {speed} | {availability} |\n"
        );
    }
    for (engine, url) in ENGINES {
        let promised = leasehold::guarantees(url).expect("an engine of this build");
        table += &line(rows, &in_line(engine), &promised);
    }
    table
}

fn line(rows: &[Row], name: &str, promised: &Guarantees) -> String {
    let order = match promised.ordered {
        true => "first come, first served",
        false => "any",
    };
    format!(
        "| {name} | {} | no: it passes on {} | if asked for: `.reentrant()` | {order} | {} | {} |\n",
        exclusion(promised),
        promised.dead_holder,
        speed(rows, name),
        availability(promised),
    )
}

fn speed(rows: &[Row], name: &str) -> String {
    match rows.iter().find(|row| row.way == name) {
        Some(row) => format!("{:.0} ({:.0} ms)", row.per_second, row.p99),
        None => "–".to_owned(),
    }
}

fn exclusion(promised: &Guarantees) -> String {
    let faults = |verdict| {
        let faults = Fault::ALL
            .iter()
            .filter(|at| promised.under(**at) == verdict);
        faults.map(Fault::to_string).collect::<Vec<_>>().join(", ")
    };
    let mut told = format!("{:?}", promised.level);
    let (fenced, broken) = (faults(Verdict::Fenced), faults(Verdict::Broken));
    if !fenced.is_empty() {
        told += &format!("; *fence*: {fenced}");
    }
    if !broken.is_empty() {
        told += &format!("; **broken**: {broken}");
    }
    told
}

fn availability(promised: &Guarantees) -> &'static str {
    match promised.under(Fault::Failover) {
        Verdict::Absent => "as its one server",
        Verdict::Broken => "a replica may take over, and not know the last grants",
        _ => "a majority of its servers is enough",
    }
}
