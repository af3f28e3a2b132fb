//! The time between the grant and the end of the command.

use std::time::Duration;

use leasehold::{Guard, GuardState, Released};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::child::{self, Change, Child, Program};
use super::signals::Signals;
use crate::exit::{Exit, Failure};
use crate::group::Left;
use crate::watchdog::Watchdog;

/// The longest time between SIGTERM and SIGKILL.
const GRACE_MAX: Duration = Duration::from_secs(5);

/// How often to look whether a group that was told to end is gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How the command's time ended.
enum End {
    /// By itself.
    Ended(u8),
    /// The lock is lost, or will be before it can be renewed.
    Lost(String),
}

/// Runs the program until it ends or the lock does; the exit code.
pub(super) async fn hold(
    guard: Guard,
    program: &Program,
    lease: Duration,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let grace = (lease / 3).min(GRACE_MAX);
    guard.check()?;
    let watchdog = Watchdog::start(guard.remaining())?;
    let command = program.command(guard.name(), guard.fence());
    let mut child = match Child::start(command, &watchdog) {
        Ok(child) => child,
        Err(error) => {
            watchdog.done();
            let _ = guard.release().await;
            return Err(child::not_run(&program.words[0], &error));
        }
    };
    match watch(&guard, &mut child, &watchdog, signals, grace).await? {
        End::Ended(code) => {
            watchdog.done();
            // The terminal is ours again before another process can hold the lock.
            drop(child);
            // The watchdog may have ended the command for a runner that stood still: that is no end of its own.
            let held = guard.check().is_ok();
            release(guard, held, code).await
        }
        End::Lost(why) => {
            let left = stop(&guard, &mut child, grace).await;
            watchdog.done();
            let left = remains(left);
            Err(Failure::new(Exit::Lost, format!("lost: {why}{left}")))
        }
    }
}

/// Until the command ends, or must be stopped.
async fn watch(
    guard: &Guard,
    child: &mut Child,
    watchdog: &Watchdog,
    signals: &mut Signals,
    grace: Duration,
) -> Result<End, Failure> {
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    loop {
        watchdog.held_for(guard.remaining());
        tokio::select! {
            biased;
            why = guard.lost() => return Ok(End::Lost(why.to_string())),
            change = child.changed() => match change? {
                Change::Ended(code) => return Ok(End::Ended(code)),
                Change::Stopped(by) => child.stopped(by),
            },
            signal = signals.next() => child.signal(signal),
            _ = continued.recv() => child.resume(),
            () = sleep(next_look(guard, grace)) => if endangered(guard, grace) {
                let why = "the lock could not be renewed, and its lease is about to end";
                return Ok(End::Lost(why.to_owned()));
            },
        }
    }
}

/// In time to tell the watchdog of a renewal, and to stop the command before the lease ends.
fn next_look(guard: &Guard, grace: Duration) -> Duration {
    let remaining = guard.remaining();
    match remaining.checked_sub(grace) {
        Some(ahead) if !ahead.is_zero() => ahead.min(remaining / 2),
        _ => remaining / 8,
    }
}

/// Whether to stop the command now. A renewal may be under way, so without a sign of failure half the grace is left.
fn endangered(guard: &Guard, grace: Duration) -> bool {
    match guard.state() {
        GuardState::Unsure => guard.remaining() <= grace,
        GuardState::Valid => guard.remaining() <= grace / 2,
        // Lost, or a state that this command does not know.
        _ => true,
    }
}

/// SIGTERM to the whole group, and SIGKILL after the grace or just before the lease ends, whichever is first. Says what
/// runs on all the same.
async fn stop(guard: &Guard, child: &mut Child, grace: Duration) -> Left {
    // The deadline stands also when the lock was taken away before it.
    let ahead = tokio::time::Instant::from_std(guard.deadline())
        .saturating_duration_since(tokio::time::Instant::now());
    let _ = child.reached(Signal::TERM);
    // One that is stopped would not hear it.
    let _ = child.reached(Signal::CONT);
    let grace = grace.min(ahead * 9 / 10);
    if timeout(grace, gone(child)).await.is_err() && child.reached(Signal::KILL) {
        // The kernel may take a moment.
        let _ = timeout(GRACE_MAX, gone(child)).await;
    }
    child.left()
}

/// The warning about a command that could not be stopped.
fn remains(left: Left) -> String {
    let who = match left {
        Left::Nothing => return String::new(),
        Left::Process { pid, uid } => format!("process {pid} of user {uid}"),
        Left::Hidden => "a process of another user".to_owned(),
    };
    format!(
        ". The command could not be stopped: {who} still runs, without the lock. This process may not end it: stop it as \
         that user"
    )
}

/// Until the child has ended.
async fn ended(child: &mut Child) {
    while let Ok(Change::Stopped(_)) = child.changed().await {}
}

/// Until the child and everything it left in its group have ended.
async fn gone(child: &mut Child) {
    ended(child).await;
    while child.left() != Left::Nothing {
        sleep(LOOK_EVERY).await;
    }
}

/// The command's exit code, if the lock was held to the command's end.
async fn release(guard: Guard, held: bool, code: u8) -> Result<u8, Failure> {
    let name = guard.name().clone();
    match guard.release().await {
        Ok(Released::Released) if held => Ok(code),
        Ok(_) => {
            let what = format!("lost: {name} was not held to the end of the command");
            Err(Failure::new(Exit::Lost, what))
        }
        // The command ran under the lock to its end: its answer stands.
        Err(error) => {
            crate::say(&format!("{}; it ends with its lease", Failure::from(error)));
            Ok(code)
        }
    }
}
