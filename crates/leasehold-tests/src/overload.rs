//! A server that says nothing while many tasks try: the client is back within a second of the server's return, and its
//! memory is bounded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::Fate;

use crate::Bed;

const TASKS: u32 = 50;
/// The time for a client to lock again, from when the server answers.
const BACK: Duration = Duration::from_secs(1);
/// The growth allowed to its process, in KiB: less than two KiB for each try of ten seconds.
const GROWTH: u64 = 8 * 1024;

/// How long the server says nothing: 10 s, or what `LEASEHOLD_SILENCE` says in seconds.
fn silence() -> Duration {
    let said = std::env::var("LEASEHOLD_SILENCE").ok();
    Duration::from_secs(said.map_or(10, |seconds| seconds.parse().expect("seconds")))
}

fn memory(locker: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", locker.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("its memory")
}

/// One server at a time: fifty tasks of each would share the processors when all of them are back.
static ONE: Mutex<()> = Mutex::new(());

/// Tasks that try a hundred milliseconds each, again and again, while the server says nothing.
///
/// # Panics
/// If the client is not back in time, or its process has grown.
#[expect(clippy::disallowed_methods, reason = "the silence lasts so long")]
pub fn is_over_with_the_silence(bed: &Bed) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (proxies, url) = bed.proxies();
    let mut locker = bed.locker(&url);
    assert!(locker.ask("lock warm").starts_with("held"));
    assert_eq!(locker.ask("release warm"), "Released");
    assert_eq!(locker.ask(&format!("try-many {TASKS}")), "trying");
    let before = memory(&locker);
    proxies.iter().for_each(|proxy| proxy.set_both(Fate::Hold));
    std::thread::sleep(silence());
    let grown = memory(&locker).saturating_sub(before);
    proxies.iter().for_each(|proxy| proxy.set_both(Fate::Pass));
    let clock = Clock::boot();
    let returned = clock.now();
    // It says itself when it was back: this process may stand still meanwhile.
    let back = locker.ask("back again");
    let at: u64 = back
        .strip_prefix("back ")
        .and_then(|at| at.parse().ok())
        .expect(&back);
    let took = Duration::from_micros(at.saturating_sub(returned));
    println!(
        "{:?} of silence: back after {took:?}, grown by {grown} KiB",
        silence()
    );
    assert!(took <= BACK, "back after {took:?}");
    assert!(grown <= GROWTH, "its process has grown by {grown} KiB");
}
