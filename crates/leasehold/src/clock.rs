//! The only place that reads clocks.
//!
//! Validity is counted on the clock that goes on while the machine is suspended, as a lease does: `CLOCK_BOOTTIME` on
//! Linux (its `CLOCK_MONOTONIC`, and so `Instant`, stands still), `CLOCK_MONOTONIC` on macOS and the BSDs, and the
//! performance counter on Windows, which is what `Instant` reads there. Tests drive the same code with
//! [`Clock::simulated`].
#![expect(
    clippy::disallowed_methods,
    reason = "this is the module that may read clocks"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds on some clock.
pub type Micros = u64;

/// Where time comes from: the machine, or a test.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use leasehold::engine::Clock;
/// use std::time::Duration;
///
/// let clock = Clock::simulated();
/// let before = clock.now();
/// clock.skip(Duration::from_secs(5)); // a suspended machine, a stopped process
/// assert!(clock.now() - before >= 5_000_000);
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    Boot,
    /// In a box: a clock is part of every grant.
    Simulated(Box<Simulated>),
}

#[derive(Debug, Clone, Default)]
struct Simulated {
    /// None: time passes by skips alone.
    start: Option<tokio::time::Instant>,
    skipped: Arc<AtomicU64>,
    /// How far the wall clock was set, in microseconds.
    set: Arc<AtomicI64>,
    /// How much faster than tokio's time it runs, in millionths.
    faster: i32,
}

/// The wall clock at the start of simulated time, in microseconds.
const SIMULATED_WALL: Micros = 1_700_000_000_000_000;

impl Clock {
    /// The machine's clock since boot, suspend included.
    pub const fn boot() -> Self {
        Self(Source::Boot)
    }

    /// Follows tokio's time, which a test may pause, and can skip ahead of it.
    pub fn simulated() -> Self {
        let start = Some(tokio::time::Instant::now());
        Self(Source::Simulated(Box::new(Simulated {
            start,
            ..Simulated::default()
        })))
    }

    /// Stands still but for [`skip`](Self::skip): the steps of an engine at one moment can be compared exactly.
    pub fn stopped() -> Self {
        Self(Source::Simulated(Box::default()))
    }

    /// Lets time pass while no task runs, as in a suspend. Only for a simulated clock; no effect otherwise.
    pub fn skip(&self, by: Duration) {
        if let Source::Simulated(simulated) = &self.0 {
            let _ = simulated.skipped.fetch_add(micros(by), Ordering::SeqCst);
        }
    }

    /// Sets the wall clock ahead or back, by so many microseconds. Only for a simulated clock; no effect otherwise.
    ///
    /// ```
    /// use leasehold::engine::Clock;
    ///
    /// let clock = Clock::stopped();
    /// let (now, wall) = (clock.now(), clock.wall());
    /// clock.set_wall(-3_600_000_000);
    /// assert_eq!((clock.now(), clock.wall()), (now, wall - 3_600_000_000));
    /// ```
    pub fn set_wall(&self, by: i64) {
        if let Source::Simulated(simulated) = &self.0 {
            let _ = simulated.set.fetch_add(by, Ordering::SeqCst);
        }
    }

    /// The clock of another machine: it runs faster by so many millionths, or slower. The same clock unless simulated.
    ///
    /// ```
    /// use leasehold::engine::Clock;
    /// use std::time::Duration;
    ///
    /// let ours = Clock::stopped();
    /// let theirs = ours.clone().faster(20_000);
    /// let before = theirs.now();
    /// ours.skip(Duration::from_secs(1));
    /// assert_eq!(theirs.now() - before, 1_020_000);
    /// ```
    #[must_use]
    pub fn faster(mut self, millionths: i32) -> Self {
        if let Source::Simulated(simulated) = &mut self.0 {
            simulated.faster = millionths;
        }
        self
    }

    /// Now, in microseconds since some fixed moment of this machine's boot.
    pub fn now(&self) -> Micros {
        match &self.0 {
            Source::Boot => since_boot(),
            Source::Simulated(simulated) => {
                let passed = simulated.start.map_or(0, |start| micros(start.elapsed()));
                let passed = passed + simulated.skipped.load(Ordering::SeqCst);
                let more = passed as i64 / 1_000 * i64::from(simulated.faster) / 1_000;
                // Starts at an hour, so that "a while ago" is never below zero.
                (3_600_000_000 + passed).saturating_add_signed(more)
            }
        }
    }

    /// Now, in microseconds of the wall clock. For fences and for people, never for validity.
    pub fn wall(&self) -> Micros {
        match &self.0 {
            Source::Boot => {
                // A wall clock before 1970 counts as none.
                let wall = SystemTime::now().duration_since(UNIX_EPOCH);
                micros(wall.unwrap_or_default())
            }
            Source::Simulated(simulated) => {
                let set = simulated.set.load(Ordering::SeqCst);
                (SIMULATED_WALL + self.now()).saturating_add_signed(set)
            }
        }
    }

    /// The wall-clock time of a moment of [`now`](Self::now).
    pub fn wall_time_of(&self, moment: Micros) -> SystemTime {
        let wall = self
            .wall()
            .saturating_add(moment)
            .saturating_sub(self.now());
        UNIX_EPOCH + Duration::from_micros(wall)
    }

    /// A moment of [`now`](Self::now) as an `Instant`, for callers that wait with one.
    pub(crate) fn instant_of(&self, moment: Micros) -> Instant {
        let (now, instant) = (self.now(), Instant::now());
        let ahead = Duration::from_micros(moment.saturating_sub(now));
        let behind = Duration::from_micros(now.saturating_sub(moment));
        instant.checked_sub(behind).unwrap_or(instant) + ahead
    }

    /// Sleeps until a moment of [`now`](Self::now), as tokio's timer counts; the caller looks at the clock again.
    pub(crate) async fn sleep_until(&self, moment: Micros) {
        tokio::time::sleep(Duration::from_micros(moment.saturating_sub(self.now()))).await;
    }
}

/// The clock that goes on in suspend.
#[cfg(unix)]
fn since_boot() -> Micros {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(BOOT);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// The clock that goes on in suspend: no other process reads it, so it may count from its first use. It begins at an hour,
/// so that "a while ago" is never below zero.
#[cfg(windows)]
fn since_boot() -> Micros {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    3_600_000_000 + micros(FIRST.get_or_init(Instant::now).elapsed())
}

/// A duration in whole microseconds, at most `u64::MAX`.
pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_grows_and_maps_to_the_wall() {
        let clock = Clock::boot();
        let (a, b) = (clock.now(), clock.now());
        assert!(b >= a);
        let off = clock
            .wall_time_of(clock.now())
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_micros() as i128
            - i128::from(clock.wall());
        assert!(off.abs() < 1_000_000, "{off} µs apart");
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_time_follows_tokio_and_skips() {
        let clock = Clock::simulated();
        let start = clock.now();
        tokio::time::advance(Duration::from_secs(2)).await;
        clock.skip(Duration::from_secs(1));
        assert_eq!(clock.now() - start, 3_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn machines_run_apart_and_walls_are_set() {
        let (clock, start) = (Clock::simulated(), Clock::simulated().now());
        let (fast, slow) = (clock.clone().faster(20_000), clock.clone().faster(-20_000));
        tokio::time::advance(Duration::from_secs(2)).await;
        let passed = [&clock, &fast, &slow].map(|clock| clock.now() - start);
        assert_eq!(passed, [2_000_000, 2_040_000, 1_960_000]);
        let wall = clock.wall();
        clock.set_wall(-5_000_000);
        assert_eq!(clock.wall(), wall - 5_000_000);
        assert_eq!(clock.now() - start, 2_000_000);
    }
}
