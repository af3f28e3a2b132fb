//! Waiting for a state, with the last state in the failure.

use std::time::Duration;

use leasehold::engine::Clock;

/// How long anything may take in a test before it gives up. A Sentinel whose timer was two seconds late, on a busy machine, does
/// nothing for the next 30 s.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until the answer is yes; after [`PATIENCE`] it panics with the last answer.
///
/// # Panics
/// If the answer stays no.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where tests wait between two looks"
)]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let clock = Clock::boot();
    let end = clock.now() + PATIENCE.as_micros() as u64;
    loop {
        let last = match ask() {
            Ok(yes) => return yes,
            Err(last) => last,
        };
        assert!(
            clock.now() < end,
            "{what}: not within {PATIENCE:?}; last seen: {last}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The same for what is asked with an await.
///
/// # Panics
/// If the answer stays no.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let clock = Clock::boot();
    let end = clock.now() + PATIENCE.as_micros() as u64;
    loop {
        let last = match ask().await {
            Ok(yes) => return yes,
            Err(last) => last,
        };
        assert!(
            clock.now() < end,
            "{what}: not within {PATIENCE:?}; last seen: {last}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
