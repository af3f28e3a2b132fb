//! Starts the shop on each engine, buys in every way, and writes `docs/shop.md` and what is made of it.
//!
//! `shop-demo` prints the table, `shop-demo --write` also writes the pages.

use std::time::Duration;

use leasehold_shop::demo::comparison::{ENGINES, in_line};
use leasehold_shop::demo::failures::{Failure, by_hand, leasehold};
use leasehold_shop::demo::fleet::{Fleet, Plan, Servers};
use leasehold_shop::demo::load::Load;
use leasehold_shop::demo::pages::{self, PAGE, Part};
use leasehold_shop::demo::rows::{HEAD, Named, OVERRUN, RIGHT, Row, WRONG, table};
use leasehold_shop::demo::uses::{packet, tree};
use leasehold_testkit::servers::consul::Consul;
use leasehold_testkit::servers::etcd::Etcd;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::servers::redlock::Nodes;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

/// The numbers of items begin here; each row takes a new one.
#[derive(Debug, Default)]
struct Book {
    rows: Vec<Row>,
    item: u64,
}

impl Book {
    fn measure(&mut self, fleet: &Fleet, way: Named, name: &str) {
        self.item += 1;
        let row = Row::measure(fleet, Load::FULL, way, name, self.item);
        println!("{}", row.line());
        self.rows.push(row);
    }
}

fn main() {
    let write = std::env::args().any(|word| word == "--write");
    let program = std::env::current_exe().expect("a path");
    let servers = Servers::start(program.with_file_name("leasehold-shop"));
    println!("{HEAD}");
    let mut book = Book::default();
    let on_redis = Plan::on(servers.redis.url());
    overrun(&servers, &mut book, &on_redis);
    let fleet = Fleet::start(&servers, &on_redis);
    for way in WRONG.iter().chain(&RIGHT) {
        book.measure(&fleet, *way, way.name);
    }
    let (tree, packet) = (tree(&fleet, 300, 0), packet(&fleet, 30, 20, 1));
    drop(fleet);
    engines(&servers, &mut book);
    let uses = format!("{}{}", tree.lines(), packet.lines());
    println!("\n{uses}\n");
    tree.check();
    packet.check();
    let failures = failures(&servers, on_redis);
    println!("{failures}");
    check(&book.rows);
    if write {
        write_all(&book.rows, uses, failures);
    }
}

/// Work that takes two and a half times as long as the lock that was made by hand for it.
fn overrun(servers: &Servers, book: &mut Book, plan: &Plan) {
    let plan = Plan {
        think: Duration::from_millis(50),
        expiry: Duration::from_millis(20),
        ..plan.clone()
    };
    book.measure(&Fleet::start(servers, &plan), OVERRUN, OVERRUN.name);
}

/// Waits in line on each engine, one after the other.
fn engines(servers: &Servers, book: &mut Book) {
    for (engine, _) in ENGINES {
        let mut on = |url: String| {
            let fleet = Fleet::start(servers, &Plan::on(url));
            let name = in_line(engine);
            let way = Named {
                word: "waiting",
                name: "",
            };
            book.measure(&fleet, way, &name);
        };
        match engine {
            "Redis" => on(servers.redis.url()),
            "Redlock" => on(Nodes::start(3).url()),
            "MariaDB" => on(servers.mariadb.url()),
            "PostgreSQL" => on(Postgres::start().url()),
            "ZooKeeper" => on(ZooKeeper::start().url()),
            "etcd" => on(Etcd::start().url()),
            _ => on(Consul::start().url()),
        }
    }
}

fn failures(servers: &Servers, plan: Plan) -> String {
    let plan = Plan {
        lease: leasehold::LEASE,
        ..plan
    };
    let mut fleet = Fleet::start(servers, &plan);
    let mut all = by_hand::all(servers, &mut fleet, 1_000);
    all.extend(leasehold::all(servers, &mut fleet, 2_000));
    let line = |failure: &Failure| {
        let Failure { way, done, seen } = failure;
        format!("\n| {way} | {done} | {seen} |")
    };
    let lines: String = all.iter().map(line).collect();
    format!("| way | what was done | what was seen |\n|---|---|---|{lines}")
}

/// The wrong ways oversell, and the others do not.
fn check(rows: &[Row]) {
    for row in rows {
        let wrong = WRONG
            .iter()
            .chain([&OVERRUN])
            .any(|way| way.name == row.way);
        assert_eq!(row.oversold > 0, wrong, "{row:?}");
    }
}

fn write_all(rows: &[Row], uses: String, failures: String) {
    let uses = format!("| what | seen |\n|---|---|\n{uses}");
    let measured = [
        ("load", table(rows)),
        ("uses", uses),
        ("failures", failures),
    ];
    for (name, text) in measured {
        pages::write(&Part {
            page: PAGE,
            name,
            text,
        });
    }
    // From the page, as the test does: the same digits.
    let rows = pages::measured();
    pages::parts(&rows).iter().for_each(pages::write);
    for (path, text) in pages::pictures(&rows) {
        pages::write_file(&path, &text);
    }
}
