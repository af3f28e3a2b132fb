//! What each engine says of each way in which a server cannot be used, as `texts.txt` keeps it. `LEASEHOLD_TEXTS_KEEP=1`
//! writes that file anew.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::servers::redis::Redis;

use crate::common::Place;

/// How a port behaves behind which no lock is to be had.
#[derive(Clone, Copy)]
enum Port {
    /// No program listens.
    Closed,
    /// Connections are made, and nothing is said.
    Silent,
    /// A web server that answers every request with a refusal.
    Web,
}

/// A port of this kind, for as long as the test runs.
fn port(kind: Port) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    if !matches!(kind, Port::Closed) {
        drop(std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if matches!(kind, Port::Web) {
                    refuse(&mut stream);
                }
                kept.push(stream);
            }
        }));
    }
    port
}

fn refuse(stream: &mut TcpStream) {
    // Some clients wait for the server's first word.
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
}

/// A URL of each engine that has servers, at this place.
fn urls(at: &str, nodes: &str) -> [(&'static str, String); 7] {
    [
        ("redis", format!("redis://{at}")),
        ("redlock", format!("redlock://{nodes}")),
        ("postgres", format!("postgres://app@{at}/db")),
        ("mysql", format!("mysql://app@{at}/db")),
        ("zookeeper", format!("zookeeper://{at}/x")),
        ("etcd", format!("etcd://{at}")),
        ("consul", format!("consul://{at}/x")),
    ]
}

/// Each case with its URL.
fn cases(servers: &(Redis, Postgres, MariaDb)) -> Vec<(String, String)> {
    let mut cases = Vec::new();
    for (word, kind) in [
        ("closed", Port::Closed),
        ("silent", Port::Silent),
        ("web", Port::Web),
    ] {
        let nodes = [(); 3].map(|()| format!("127.0.0.1:{}", port(kind)));
        let urls = urls(&nodes[0], &nodes.join(","));
        cases.extend(urls.map(|(engine, url)| (format!("{engine}, {word} port"), url)));
    }
    let options = urls("host", "a,b,c");
    let option = |(engine, url)| (format!("{engine}, unknown option"), format!("{url}?nope=1"));
    cases.extend(options.map(option));
    let (redis, postgres, mariadb) = servers;
    let at = redis.url().replace("redis://", "");
    let at = at.trim_end_matches('/');
    let (pg, my) = (postgres.port, mariadb.port);
    let more = [
        ("redis, no password", format!("redis://{at}")),
        ("redis, wrong password", format!("redis://:wrong@{at}")),
        (
            "redis, no such database",
            format!("redis://:s3cret@{at}/99"),
        ),
        (
            "postgres, no such database",
            format!("postgres://lab@127.0.0.1:{pg}/nope"),
        ),
        (
            "postgres, no such role",
            format!("postgres://nope@127.0.0.1:{pg}/postgres"),
        ),
        (
            "mysql, wrong login",
            format!("mysql://nope:wrong@127.0.0.1:{my}/mysql"),
        ),
        ("file, no such place", "file:/proc/nope".to_owned()),
        (
            "sqlite, no such directory",
            "sqlite:/proc/nope/x.db".to_owned(),
        ),
    ];
    cases.extend(more.map(|(case, url)| (case.to_owned(), url)));
    cases
}

/// The text without what differs from run to run: ports, and how often and how long a server was tried.
fn settled(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut settled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        settled += "127.0.0.1:PORT";
        settled += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    while let Some(from) = settled.find(" (tried ") {
        let to = settled[from..].find(" s)").unwrap() + from + " s)".len();
        settled.replace_range(from..to, "");
    }
    settled
}

#[test]
fn every_failure_names_the_place_and_the_remedy() {
    let servers = (Redis::start(), Postgres::start(), MariaDb::start());
    let _ = servers.0.cli("CONFIG SET requirepass s3cret");
    let place = Place::new();
    let started: Vec<_> = cases(&servers)
        .into_iter()
        .map(|(case, url)| (case, place.start(&["--url", &url, "status"])))
        .collect();
    let mut found = BTreeMap::new();
    for (case, running) in started {
        let answer = running.end();
        let text = settled(answer.err.trim_end());
        assert!(!text.contains("s3cret"), "{case}: {text}");
        let server = case.ends_with("port") && !text.contains("127.0.0.1:PORT");
        assert!(!server, "{case} names no host: {text}");
        let _ = found.insert(case, format!("{} {text}", answer.code));
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/texts.txt");
    if std::env::var_os("LEASEHOLD_TEXTS_KEEP").is_some() {
        let text: String = found
            .iter()
            .map(|(case, text)| format!("# {case}\n{text}\n"))
            .collect();
        return std::fs::write(kept, text).unwrap();
    }
    let kept = std::fs::read_to_string(kept).unwrap();
    let kept: BTreeMap<_, _> = kept
        .split("# ")
        .filter_map(|part| part.trim_end().split_once('\n'))
        .map(|(case, text)| (case.to_owned(), text.to_owned()))
        .collect();
    for (case, text) in &found {
        assert_eq!(
            Some(text),
            kept.get(case),
            "{case}; LEASEHOLD_TEXTS_KEEP=1 keeps the new texts"
        );
    }
    assert_eq!(found.len(), kept.len(), "texts of cases that are gone");
}
