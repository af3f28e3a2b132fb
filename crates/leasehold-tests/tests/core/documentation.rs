//! The documentation agrees with the code.

use std::path::{Path, PathBuf};

use leasehold::engine::{Fault, Guarantees, Level, Verdict};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

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
    "postgres://app@localhost/db?failover=none",
    "postgres://app@localhost/db?commit=async&failover=none",
    "mysql://app@localhost/db",
    "mysql://app@localhost/db?failover=none",
    "sqlite:locks.db",
    "zookeeper://localhost",
    "etcd://localhost",
    "consul://localhost",
    "consul://localhost?checks=serf",
    "consul://localhost?layout=consul",
    "consul://localhost?layout=consul&checks=serf",
];

#[test]
fn the_table_of_guarantees_is_generated() {
    let row = |url: &&str| leasehold::guarantees(url).expect("an engine").table_row();
    let rows: Vec<_> = URLS.iter().map(row).collect();
    let table = format!("{}\n{}\n", Guarantees::table_header(), rows.join("\n"));
    let text = read("docs/promises.md");
    for line in table.lines() {
        assert!(
            text.contains(line),
            "docs/promises.md lacks this line of the table, which the code prints:\n{table}"
        );
    }
}

#[test]
fn every_promise_is_cited_by_a_check_and_every_citation_is_a_promise() {
    let promises = read("docs/promises.md");
    let numbered: Vec<u32> = promises
        .lines()
        .filter_map(|line| line.strip_prefix("**P")?.split_once('.')?.0.parse().ok())
        .collect();
    assert!(numbered.len() >= 20, "{numbered:?}");
    let mut checks = String::new();
    for file in
        std::fs::read_dir(root().join("crates/leasehold/src/conformance")).expect("readable")
    {
        checks += &std::fs::read_to_string(file.expect("readable").path()).expect("readable");
    }
    for number in &numbered {
        let cited = checks
            .match_indices(&format!("P{number}"))
            .any(|(at, word)| !checks[at + word.len()..].starts_with(|c: char| c.is_ascii_digit()));
        assert!(cited, "no check cites P{number}");
    }
    for (at, _) in checks.match_indices("\"P") {
        let digits: String = checks[at + 2..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        if let Ok(number) = digits.parse::<u32>() {
            assert!(
                numbered.contains(&number),
                "a check cites P{number}, which is not in docs/promises.md"
            );
        }
    }
}

#[test]
fn pages_that_are_linked_exist() {
    let mut pages = vec![
        "README.md".into(),
        "CONTRIBUTING.md".into(),
        "CHANGELOG.md".into(),
    ];
    for page in std::fs::read_dir(root().join("docs")).expect("readable") {
        let page = page.expect("readable").file_name();
        let page = page.to_str().expect("a name in UTF-8");
        if page.ends_with(".md") {
            pages.push(format!("docs/{page}"));
        }
    }
    for page in &pages {
        let text = read(page);
        let folder = root().join(page).parent().expect("a folder").to_path_buf();
        for (at, _) in text.match_indices("](") {
            let target: String = text[at + 2..].chars().take_while(|c| *c != ')').collect();
            let path = target.split('#').next().unwrap_or("");
            if !path.is_empty() && !path.contains("://") {
                assert!(
                    folder.join(path).exists(),
                    "{page} links to {target}, which is not there"
                );
            }
        }
    }
}

/// No row says that fences only grow, and that one may come twice.
#[test]
fn a_level_fits_its_verdicts() {
    let faults = [Fault::ServerCrash, Fault::Failover, Fault::Partition];
    for url in URLS {
        let promised = leasehold::guarantees(url).expect("an engine");
        let broken = faults.map(|fault| promised.under(fault) == Verdict::Broken);
        let refused = promised.require(Level::L2).is_err();
        assert!(refused || !broken.contains(&true), "{url}");
    }
    let typo = leasehold::guarantees("postgres://app@localhost/db?failover=never");
    let typo = typo.expect_err("no such value").to_string();
    assert!(typo.contains("failover is possible or none"), "{typo}");
}

/// Gossip may end the session of a holder that runs: that is no level at which fences need not be checked.
#[test]
fn a_session_that_gossip_may_end_promises_less() {
    for layout in ["", "&layout=consul"] {
        let at = |checks: &str| {
            let url = format!("consul://localhost?checks={checks}{layout}");
            leasehold::guarantees(&url).expect("an engine")
        };
        assert_eq!(at("none").under(Fault::Partition), Verdict::Kept);
        assert_eq!(at("serf").under(Fault::Partition), Verdict::Fenced);
        assert!(at("serf").require(Level::L2).is_err());
    }
}
