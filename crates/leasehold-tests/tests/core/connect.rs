//! A connect to an engine that is not there yet.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Step;
use leasehold::engine::{Clock, Memory};
use leasehold::{Client, ConnectOptions, Error, ErrorKind, Result};
use leasehold_testkit::faulty::{Fault, Faulty, Op, Plan};

async fn connect(plan: &Plan, options: ConnectOptions) -> Result<Client> {
    let clock = Clock::simulated();
    let engine = Faulty::new(Memory::new(clock.clone()), plan);
    options.clock(clock).open(Arc::new(engine)).await
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_just_starting_is_waited_for() {
    let plan = Plan::default();
    plan.set(Op::Open, Fault::Refuse);
    let (client, ()) = tokio::join!(connect(&plan, ConnectOptions::new()), async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        plan.heal();
    });
    assert!(client.is_ok(), "{client:?}");
    assert!(
        plan.calls(Op::Open) < 20,
        "{} attempts",
        plan.calls(Op::Open)
    );
}

#[tokio::test(start_paused = true)]
async fn the_patience_is_kept_and_told() {
    for (patience, attempts) in [(0, 1..=1), (2, 3..=20)] {
        let plan = Plan::default();
        plan.set(Op::Open, Fault::Refuse);
        let begin = tokio::time::Instant::now();
        let patience = Duration::from_secs(patience);
        let error = connect(&plan, ConnectOptions::new().patience(patience)).await;
        let (error, took) = (error.unwrap_err(), begin.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            attempts.contains(&plan.calls(Op::Open)),
            "{}",
            plan.calls(Op::Open)
        );
        assert!(
            took >= patience && took < patience + Duration::from_millis(600),
            "{took:?}"
        );
        let told = error.to_string().contains("times in 2.0 s");
        assert_eq!(told, patience > Duration::ZERO, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_told_at_once() {
    let begin = tokio::time::Instant::now();
    let error = leasehold::connect("carrier-pigeon:").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let plan = Plan::default();
    plan.set(Op::Open, Fault::LoseReply);
    let error = connect(&plan, ConnectOptions::new()).await.unwrap_err();
    assert!(error.may_have_happened(), "{error}");
    assert_eq!(
        plan.calls(Op::Open),
        1,
        "a session may be open: no second one is begun"
    );
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let denied = Error::new(ErrorKind::Denied, Step::Open, "wrong password");
    assert!(!denied.is_transient());
}
