//! Asking for the lock.

use leasehold::engine::Mode;
use leasehold::{Client, ErrorKind, Guard, Result};
use tokio::time::Instant;

use crate::cli::RunArgs;

/// The guard, or none if it is busy until then; waits for ever if no time is given.
pub(super) async fn claim(
    args: &RunArgs,
    until: Option<Instant>,
    client: &Client,
) -> Result<Option<Guard>> {
    let over = args.no_wait || until.is_some_and(|until| until <= Instant::now());
    match until {
        _ if over => ask_either(args, client, false).await,
        None => ask_either(args, client, true).await,
        Some(until) => {
            let asked = tokio::time::timeout_at(until, ask_either(args, client, true)).await;
            asked.unwrap_or(Ok(None))
        }
    }
}

/// How to claim, and how to do it if the name is in use the other way.
///
/// A line is either a mutex or a read/write lock while it is in use. For a command "alone" and "shared" must exclude
/// each other whoever came first, so each falls back to what excludes at least as much: alone is a writer among
/// readers, and shared takes its turn alone among mutexes.
fn modes(args: &RunArgs) -> (Mode, Option<Mode>) {
    match (args.permits, args.of) {
        (Some(count), Some(of)) => (Mode::Permits { count, of }, None),
        _ if args.shared => (Mode::Read, Some(Mode::Mutex)),
        _ => (Mode::Mutex, Some(Mode::Write)),
    }
}

async fn ask_either(args: &RunArgs, client: &Client, waits: bool) -> Result<Option<Guard>> {
    let (first, second) = modes(args);
    let asked = ask(args, client, first, waits).await;
    match (asked, second) {
        (Err(error), Some(second)) if error.kind() == ErrorKind::Conflict => {
            let other = ask(args, client, second, waits).await;
            // In use as a semaphore, which neither fits: the first answer names that.
            match other {
                Err(again) if again.kind() == ErrorKind::Conflict => Err(error),
                other => other,
            }
        }
        (asked, _) => asked,
    }
}

async fn ask(args: &RunArgs, client: &Client, mode: Mode, waits: bool) -> Result<Option<Guard>> {
    macro_rules! asked {
        ($lock:expr, $wait:ident($($count:expr)?), $try:ident) => {{
            let lock = $lock.lease(args.lease);
            if waits { lock.$wait($($count)?).await.map(Some) } else { lock.$try($($count)?).await }
        }};
    }
    let name = &args.name;
    match mode {
        Mode::Mutex => asked!(client.mutex(name), lock(), try_lock),
        Mode::Read => asked!(client.rwlock(name), read(), try_read),
        Mode::Write => {
            let guard = asked!(client.rwlock(name), write(), try_write)?;
            Ok(guard.map(Into::into))
        }
        Mode::Permits { count, of } => {
            asked!(
                client.semaphore(name, of),
                acquire_many(count),
                try_acquire_many
            )
        }
    }
}
