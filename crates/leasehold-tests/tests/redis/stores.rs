//! Values behind a network that breaks.

use std::process::Command;

use leasehold::{ConnectOptions, store};
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::redis::Redis;

const STOCK: u64 = 100;

/// Requests and answers are lost at every message in turn. A take whose answer was lost is not done twice: what was taken is
/// what the callers were told, and at most as many more as were told that it may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_adds_up_while_answers_are_lost() {
    let server = Redis::start();
    let proxy = Proxy::before(server.port);
    let far = store::open(&format!("redis://127.0.0.1:{}", proxy.port)).expect("a store");
    let client = ConnectOptions::new()
        .store(far)
        .connect(&server.url())
        .await;
    let stock = client.expect("connected").stock("item", 2);
    stock.refill(STOCK).await.expect("refilled");
    let (mut sold, mut unknown, mut refused) = (0, 0, 0);
    for round in 0..30 {
        let way = [Way::ToServer, Way::ToClient][round as usize % 2];
        proxy.after(way, round / 2 % 5, Fate::Reset);
        match stock.take(1).await {
            Ok(taken) => sold += u64::from(taken),
            Err(error) if error.may_have_happened() => unknown += 1,
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                refused += 1;
            }
        }
    }
    let near = leasehold::connect(&server.url()).await.expect("connected");
    let left = near.stock("item", 2).total().await.expect("counted");
    let taken = STOCK - left;
    println!("{sold} sold, {unknown} unknown, {refused} refused, {taken} taken");
    assert!(
        (sold..=sold + unknown).contains(&taken),
        "{taken} were taken: {sold} sold, {unknown} unknown"
    );
    assert!(sold >= 20, "a lost answer is asked for again: {sold} of 30");
    assert!(proxy.connections() > 5, "the connection was cut");
}

/// Of 1,000 misses at once in four processes one loads.
#[test]
fn one_process_loads_for_the_fleet() {
    let server = Redis::start();
    for round in 0..3 {
        let locker = || Command::new(env!("CARGO_BIN_EXE_locker"));
        let start = |_| Process::start(locker().args([&server.url(), "10000"]));
        let mut fleet: Vec<_> = (0..4).map(start).collect();
        for process in &fleet {
            assert_eq!(process.hear(), "ready");
        }
        for process in &mut fleet {
            process.say(&format!("cached categories:{round} 250"));
        }
        let loads = fleet.iter().map(|process| {
            let heard = process.hear();
            let loads = heard.strip_prefix("loads ").map(str::parse::<usize>);
            loads
                .unwrap_or_else(|| panic!("{heard}"))
                .expect("a number")
        });
        let loads: Vec<_> = loads.collect();
        println!("round {round}: loads per process: {loads:?}");
        assert_eq!(
            loads.iter().sum::<usize>(),
            1,
            "loads in the fleet: {loads:?}"
        );
    }
}
