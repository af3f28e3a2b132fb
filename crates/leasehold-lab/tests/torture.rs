//! A short run on the file engine: real processes, killed, stopped and robbed of their locks.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_lab::report::{Report, record};
use leasehold_lab::torture::{FaultKind, Plan, torture};

fn plan(into: PathBuf, seed: u64) -> Plan {
    Plan {
        url: "file:".into(),
        time: Duration::from_secs(6),
        seed,
        workers: 4,
        lease: Duration::from_millis(400),
        rest: Duration::from_millis(20),
        faults: vec![FaultKind::Kill, FaultKind::Pause, FaultKind::Evict],
        program: env!("CARGO_BIN_EXE_leasehold-lab").into(),
        into,
        progress: false,
    }
}

#[tokio::test]
async fn the_file_engine_keeps_its_promises() {
    let temp = tempfile::tempdir().unwrap();
    let into = temp.path().join("run");
    let report = torture(&plan(into.clone(), 1)).await.unwrap();
    println!("{}", report.text);
    assert!(report.good, "{}", report.text);
    assert_eq!(
        Report::load(&into.join("report.json")).unwrap().text,
        report.text
    );

    let ledger = temp.path().join("track-record.md");
    record(&into.join("report.json"), &ledger).unwrap();
    record(&into.join("report.json"), &ledger).unwrap();
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
    let mut plan = plan(temp.path().join("run"), 1);
    plan.faults = vec![FaultKind::ServerKill];
    assert!(torture(&plan).await.is_err());
}
