//! Agents that have no leader, and servers that are no agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, ErrorKind, Name, Released};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::consul::Consul;
use leasehold_testkit::servers::web::Web;

/// A request that waits for a change is answered after this, whatever happens.
const WAIT: Duration = Duration::from_secs(11);

const BOTH: [&str; 2] = ["/odd", "/odd?layout=consul"];

async fn client(port: u16, rest: &str) -> Client {
    let url = format!("consul://127.0.0.1:{port}{rest}");
    let opened = ConnectOptions::new().lease(3 * WAIT).connect(&url).await;
    opened.expect("connected")
}

/// The other client has the lock, and ours waits for it.
async fn waits(
    ours: &Client,
    name: &str,
) -> tokio::task::JoinHandle<leasehold::Result<leasehold::Guard>> {
    let mutex = ours.mutex(name);
    let waiter = tokio::spawn(async move { mutex.lock().await });
    let query = Query::name(Name::new(name).expect("a name"));
    eventually("it waits", async || {
        let lines = ours
            .inspect(&query)
            .await
            .map_err(|error| error.to_string())?;
        match lines.first() {
            Some(line) if line.waiters.len() == 1 => Ok(()),
            line => Err(format!("{line:?}")),
        }
    })
    .await;
    waiter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_leader_is_asked_again() {
    let server = Consul::start();
    for rest in BOTH {
        let leaderless = Arc::<AtomicBool>::default();
        let (flag, told) = (leaderless.clone(), Arc::<AtomicU64>::default());
        let said = told.clone();
        let agent = Web::before(server.port(), str::to_owned, move |head| {
            if !flag.load(Ordering::SeqCst) || !head.contains("X-Consul-Knownleader: true") {
                return head.to_owned();
            }
            let _ = said.fetch_add(1, Ordering::SeqCst);
            head.replace("X-Consul-Knownleader: true", "X-Consul-Knownleader: false")
        });
        let (ours, other) = (
            client(agent.port(), rest).await,
            client(server.port(), rest).await,
        );
        let held = other.mutex("leaderless").lock().await.expect("free");
        let waiter = waits(&ours, "leaderless").await;
        leaderless.store(true, Ordering::SeqCst);
        assert_eq!(held.release().await.expect("released"), Released::Released);
        eventually("it is told that there is no leader", async || {
            match told.load(Ordering::SeqCst) {
                told @ ..3 => Err(format!("{told} times")),
                _ => Ok(()),
            }
        })
        .await;
        assert!(!waiter.is_finished(), "{rest}: decided without a leader");
        leaderless.store(false, Ordering::SeqCst);
        let granted = tokio::time::timeout(2 * WAIT, waiter).await;
        let granted = granted.expect("granted in time").expect("no panic");
        drop(granted.expect("granted"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_consul_is_told_from_one() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found",
        "-ERR unknown command\r\n",
    ] {
        let server = Web::says(answer);
        for rest in BOTH {
            let url = format!("consul://127.0.0.1:{}{rest}", server.port());
            let error = leasehold::connect(&url).await.expect_err("no Consul");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let said = error.to_string();
            assert!(said.contains("HTTP port of Consul"), "{answer}: {said}");
        }
    }
}

/// A process that finds all of it in its environment.
#[test]
fn certificates_may_be_in_the_environment() {
    let server = Consul::tls();
    let url = server.secured("/environment");
    let (place, options) = url.split_once('?').expect("options");
    let address = place.strip_prefix("consuls://").expect("TLS");
    let address = address.strip_suffix("/environment").expect("a path");
    let locker = |without: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_locker"));
        let _ = command.args(["consul:///environment", "10000"]);
        let _ = command.env("CONSUL_HTTP_ADDR", format!("https://{address}"));
        for option in options.split('&') {
            let (name, file) = option.split_once('=').expect("a value");
            let variable = match name {
                "ca" => "CONSUL_CACERT",
                "cert" => "CONSUL_CLIENT_CERT",
                _ => "CONSUL_CLIENT_KEY",
            };
            if variable != without {
                let _ = command.env(variable, file);
            }
        }
        Process::start(&mut command)
    };
    let mut locker_with_all = locker("");
    assert_eq!(locker_with_all.hear(), "ready");
    assert!(locker_with_all.ask("lock e").starts_with("held"));
    let said = locker("CONSUL_CACERT").hear();
    assert!(said.contains("invalid peer certificate"), "{said}");
    let said = locker("CONSUL_CLIENT_KEY").hear();
    assert!(said.contains("are a pair"), "{said}");
}
