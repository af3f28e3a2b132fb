//! What is said about security is so: every test that the documentation names is there, and no secret is told or logged.

use std::path::{Path, PathBuf};

use leasehold_testkit::log::Log;

const DOCS: &str = include_str!("../../../../docs/security.md");

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// Words of the documentation that are the names of tests.
fn named() -> impl Iterator<Item = &'static str> {
    let words = DOCS.split('`').skip(1).step_by(2);
    let plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    words.filter(move |word| word.matches('_').count() >= 3 && word.chars().all(plain))
}

#[test]
fn every_test_that_the_documentation_names_is_there() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in [
        "leasehold/src",
        "leasehold-cli/tests",
        "leasehold-tests/tests",
    ] {
        sources(&crates.join(part), &mut files);
    }
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("readable");
    let all: String = files.iter().map(read).collect();
    let missing: Vec<_> = named()
        .filter(|name| !all.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "docs/security.md names {missing:?}");
    assert!(named().count() > 30, "{}", named().count());
}

/// The last cell of a row says how it is known: a test plays the account, or the account is a client.
#[test]
fn every_row_of_the_threat_model_names_a_test() {
    let rows = DOCS.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<_> = rows.filter(|line| !line.ends_with("| test |")).collect();
    assert!(rows.len() > 35, "{}", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 5, "{row}");
        let test = cells[4].trim();
        let named = test == "– (it is a client)" || named().any(|name| test.contains(name));
        assert!(named, "no test in the last cell of: {row}");
    }
    for engine in [
        "memory",
        "file",
        "Redis",
        "Redlock",
        "PostgreSQL",
        "MariaDB",
        "SQLite",
        "ZooKeeper",
        "etcd",
        "Consul",
        "Consul, layout=consul",
    ] {
        assert!(DOCS.contains(&format!("\n## {engine}")), "{engine}");
    }
}

/// Port 1 of this machine: nothing listens there.
const URLS: &[&str] = &[
    "redis://app:hunter2@127.0.0.1:1/2",
    "redis://:hunter2@127.0.0.1:1?layout=redisson",
    "rediss://app:hunter2@127.0.0.1:1",
    "redis+unix://app:hunter2@/nonexistent/socket",
    "redis+sentinel://app:hunter2@127.0.0.1:1/main?sentinel_password=hunter2",
    "redis+cluster://app:hunter2@127.0.0.1:1",
    "redlock://app:hunter2@127.0.0.1:1,127.0.0.2:1,127.0.0.3:1",
    "postgres://app:hunter2@127.0.0.1:1/db",
    "postgres://app:hunter2@127.0.0.1:1/db?sslmode=verify-full",
    "mysql://app:hunter2@127.0.0.1:1/db",
    "mysql://app:hunter2@127.0.0.1:1/db?sslmode=verify-full",
    "zookeeper://app:hunter2@127.0.0.1:1/locks",
    "zookeeper://127.0.0.1:1/locks?auth=digest:app:hunter2",
    "etcd://app:hunter2@127.0.0.1:1?prefix=x/",
    "etcds://app:hunter2@127.0.0.1:1",
    "consul://:hunter2@127.0.0.1:1/locks",
    "consul://127.0.0.1:1/locks?token=hunter2",
    "consuls://app:hunter2@127.0.0.1:1",
    "consul://hunter2@127.0.0.1:1",
    "redis://hunter2@127.0.0.1:1",
    "redlock://hunter2@127.0.0.1:1,127.0.0.2:1,127.0.0.3:1",
    "consul+unix://:hunter2@/nonexistent/socket",
    "sqlite://app:hunter2@h/x",
    "file://app:hunter2@h/x",
    "memory://app:hunter2@h",
];

/// What is told and logged of a URL by one attempt to connect.
fn told(url: &str) -> String {
    let log = Log::default();
    let told = log.during(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            match leasehold::connect(url).await {
                Ok(client) => format!("{client:?} {}", client.location()),
                Err(error) => format!("{error} {error:?} {error:#?}"),
            }
        })
    });
    format!("{told}\n{}", log.text())
}

#[test]
fn no_password_is_logged_or_told_when_a_server_cannot_be_reached() {
    std::thread::scope(|scope| {
        for url in URLS {
            let _ = scope.spawn(move || {
                let told = told(url);
                assert!(!told.contains("hunter2"), "{url}: {told}");
            });
        }
    });
}
