//! A damaged line costs the other lines of the same client nothing.

use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Query, Redis as Engine, Url};
use leasehold::{ConnectOptions, ErrorKind, GuardState};
use leasehold_testkit::servers::redis::{Cluster, Redis};

const LEASE: Duration = Duration::from_millis(900);

fn subject(url: &str) -> Subject {
    Subject::new(Engine::from_url(&Url::parse(url).expect("a URL")).expect("an engine"))
}

/// Makes a value of another program of each key below the prefix that ends so.
fn replace(server: &Redis, name: &str, with: &str) {
    let keys = server.cli("KEYS lh:{??}:*");
    let key = keys.lines().find(|key| key.ends_with(name));
    let key = key.expect("the line is there");
    let _ = server.cli(&format!("DEL {key}"));
    let _ = server.cli(&with.replace("KEY", key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_program_costs_its_own_claim_only() {
    let server = Redis::start();
    let (s, options) = (subject(&server.url()), ConnectOptions::new().lease(LEASE));
    let client = options.connect(&server.url()).await.expect("connected");
    for with in ["RPUSH KEY x", "SET KEY x", "SADD KEY x"] {
        let (name, other) = (fresh_name(), fresh_name());
        let bad = client.mutex(&name).lock().await.expect("free");
        let good = client.mutex(&other).lock().await.expect("free");
        replace(&server, &name, with);
        let lost = tokio::time::timeout(LEASE * 2, bad.lost()).await;
        println!("{with}: {}", lost.expect("its own guard is lost"));
        for _ in 0..3 {
            let before = good.deadline();
            let renewed = async || match good.deadline() > before {
                true => Ok(()),
                false => Err(format!("{:?}", good.state())),
            };
            s.eventually("the other is renewed", renewed).await;
        }
        assert_eq!(good.state(), GuardState::Valid);
        let refused = client.mutex(&name).try_lock().await.expect_err("no lock");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        // It is left out where all names are shown.
        let lines = client.inspect(&Query::all()).await.expect("shown");
        let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, [other.as_str()]);
        let _ = good.release().await.expect("released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_costs_the_claims_of_other_masters_nothing() {
    let cluster = Cluster::start();
    let (s, options) = (subject(&cluster.url()), ConnectOptions::new().lease(LEASE));
    let client = options.connect(&cluster.url()).await.expect("connected");
    let names: Vec<_> = (0..24).map(|_| fresh_name()).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.mutex(name).lock().await.expect("free"));
    }
    let on_first = cluster.nodes[0].cli("KEYS lh:*");
    let (silent, other): (Vec<_>, Vec<_>) = guards
        .into_iter()
        .zip(&names)
        .partition(|(_, name)| on_first.contains(name.as_str()));
    assert!(!silent.is_empty() && !other.is_empty());
    cluster.nodes[0].pause(true);
    for (guard, _) in &silent {
        let lost = tokio::time::timeout(LEASE * 2, guard.lost()).await;
        let _ = lost.expect("told within the lease");
    }
    for (guard, name) in &other {
        let before = guard.deadline();
        let renewed = async || match guard.deadline() > before {
            true => Ok(()),
            false => Err(format!("{name}: {:?}", guard.state())),
        };
        s.eventually("the others are renewed", renewed).await;
        assert_eq!(guard.state(), GuardState::Valid);
    }
    cluster.nodes[0].pause(false);
}
