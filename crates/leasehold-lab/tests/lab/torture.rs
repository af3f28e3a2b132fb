//! A short run on every engine: real processes and servers; workers killed, stopped, cut off and robbed of their locks, servers
//! killed and stopped.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_lab::report::{Report, record};
use leasehold_lab::torture::{FaultKind, Plan, engines, faults_of, lease_of, torture};

fn plan(engine: &str, into: PathBuf) -> Plan {
    let lease = lease_of(engine);
    Plan {
        url: engine.into(),
        time: Duration::from_secs(9),
        seed: 1,
        workers: 5,
        lease,
        rest: lease / 10,
        faults: faults_of(engine).to_vec(),
        program: env!("CARGO_BIN_EXE_leasehold-lab").into(),
        into,
        progress: false,
    }
}

async fn keeps_its_promises(engine: &str) -> (tempfile::TempDir, Report) {
    let temp = tempfile::tempdir().unwrap();
    let report = torture(&plan(engine, temp.path().join("run")))
        .await
        .unwrap_or_else(|error| panic!("{engine}: {error}"));
    println!("{}", report.text);
    assert!(report.good, "{engine}: {}", report.text);
    (temp, report)
}

/// One test for each engine, so that they run side by side.
macro_rules! each {
    ($($name:ident $engine:literal)*) => {
        $(#[tokio::test]
        async fn $name() {
            let _ = keeps_its_promises($engine).await;
        })*

        #[test]
        fn no_engine_is_left_out() {
            let mut tested = vec!["file", $($engine),*];
            let mut all = engines();
            tested.sort_unstable();
            all.sort_unstable();
            assert_eq!(tested, all);
        }
    };
}

each! {
    sqlite "sqlite"
    redis "redis"
    redis_durable "redis-durable"
    redis_sentinel "redis-sentinel"
    redis_cluster "redis-cluster"
    redlock "redlock"
    postgres "postgres"
    mariadb "mariadb"
    zookeeper "zookeeper"
    zookeeper_ensemble "zookeeper-ensemble"
    etcd "etcd"
    etcd_cluster "etcd-cluster"
    consul "consul"
    consul_shared "consul-shared"
    consul_three "consul-three"
}

#[tokio::test]
async fn file() {
    let (temp, report) = keeps_its_promises("file").await;
    let saved = temp.path().join("run/report.json");
    assert_eq!(Report::load(&saved).unwrap().text, report.text);

    let ledger = temp.path().join("track-record.md");
    record(&saved, &ledger).unwrap();
    record(&saved, &ledger).unwrap();
    let rows = std::fs::read_to_string(ledger).unwrap();
    let rows: Vec<_> = rows
        .lines()
        .filter(|line| line.contains("| file |"))
        .collect();
    assert!(rows.len() == 1 && rows[0].ends_with("| kept |"), "{rows:?}");
}

#[tokio::test]
async fn a_fault_that_cannot_be_made_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let mut plan = plan("file", temp.path().join("run"));
    plan.faults = vec![FaultKind::ServerKill];
    assert!(torture(&plan).await.is_err());
}
