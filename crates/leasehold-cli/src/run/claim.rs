//! Asking for the lock.

use leasehold::engine::Mode;
use leasehold::engine::Step;
use leasehold::{Client, Error, ErrorKind, Guard, Result};
use tokio::time::Instant;

use crate::cli::RunArgs;

/// How long to wait for the lock.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Until(Instant),
    ForEver,
}

/// How often a name that is in use another way is asked for again; an even number.
const AGAIN: usize = 8;

/// The guard, or none if it is busy until then; waits for ever if no time is given.
pub(super) async fn claim(
    args: &RunArgs,
    until: Option<Instant>,
    client: &Client,
) -> Result<Option<Guard>> {
    let wait = match until {
        _ if args.no_wait => Wait::No,
        Some(until) if until <= Instant::now() => Wait::No,
        Some(until) => Wait::Until(until),
        None => Wait::ForEver,
    };
    let (first, second) = modes(args);
    either(first, second, async |mode| {
        ask(args, client, mode, wait).await
    })
    .await
}

/// How to claim, and how to do it if the name is in use the other way.
///
/// A line is either a mutex or a read/write lock while it is in use. For a command "alone" and "shared" must exclude
/// each other in either order, so each falls back to what excludes at least as much: alone is a writer among
/// readers, and shared takes its turn alone among mutexes.
fn modes(args: &RunArgs) -> (Mode, Option<Mode>) {
    match (args.permits, args.of) {
        (Some(count), Some(of)) => (Mode::Permits { count, of }, None),
        _ if args.shared => (Mode::Read, Some(Mode::Mutex)),
        _ => (Mode::Mutex, Some(Mode::Write)),
    }
}

/// Whether a lock that is held this way gives a nested run what it asks for.
pub(super) fn covers(held: Mode, args: &RunArgs) -> bool {
    let (asked, _) = modes(args);
    match asked {
        Mode::Permits { count, .. } => {
            matches!(held, Mode::Mutex | Mode::Permits { .. }) && count <= held.weight()
        }
        Mode::Read => !matches!(held, Mode::Permits { .. }),
        Mode::Mutex | Mode::Write => matches!(held, Mode::Mutex | Mode::Write),
        _ => false,
    }
}

/// A name may change its kind between two asks, as its holders end and others come: so each is asked again. What is in
/// use as a semaphore, which neither fits, is refused with the answer to the first.
async fn either<T>(
    first: Mode,
    second: Option<Mode>,
    mut ask: impl AsyncFnMut(Mode) -> Result<T>,
) -> Result<T> {
    let mut asked = ask(first).await;
    let Some(second) = second else {
        return asked;
    };
    for mode in [second, first].into_iter().cycle().take(AGAIN) {
        match &asked {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            _ => break,
        }
        asked = ask(mode).await;
    }
    asked
}

async fn ask(args: &RunArgs, client: &Client, mode: Mode, wait: Wait) -> Result<Option<Guard>> {
    macro_rules! asked {
        ($lock:expr, $wait:ident, $within:ident, $try:ident $(, $count:expr)?) => {{
            let lock = $lock.lease(args.lease);
            match wait {
                Wait::No => lock.$try($($count)?).await,
                Wait::ForEver => lock.$wait($($count)?).await.map(Some),
                Wait::Until(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    lock.$within($($count,)? left).await
                }
            }
        }};
    }
    let name = &args.name;
    match mode {
        Mode::Mutex => asked!(client.mutex(name), lock, lock_within, try_lock),
        Mode::Read => asked!(client.rwlock(name), read, read_within, try_read),
        Mode::Write => {
            let guard = asked!(client.rwlock(name), write, write_within, try_write)?;
            Ok(guard.map(Into::into))
        }
        Mode::Permits { count, of } => asked!(
            client.semaphore(name, of),
            acquire_many,
            acquire_many_within,
            try_acquire_many,
            count
        ),
        // `modes` makes no other.
        other => {
            let what = format!("this command knows no lock held as {other}");
            Err(Error::new(ErrorKind::Unsupported, Step::Claim, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use leasehold::Error;
    use leasehold::engine::Step;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(more: &[&str]) -> RunArgs {
        let words = [&["leasehold", "run", "x"], more, &["--", "true"]].concat();
        match Cli::try_parse_from(words).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// The answers to one ask after the other, and what came of them: the answer, and how often was asked.
    fn asked(answers: &[Option<ErrorKind>], second: Option<Mode>) -> (Option<ErrorKind>, usize) {
        let mut left = answers.iter();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let got = runtime.block_on(either(Mode::Mutex, second, async |mode| {
            let asked = answers.len() - left.len();
            let expected = [Mode::Mutex, Mode::Write][asked % 2];
            assert_eq!(mode, expected, "in turns");
            match left.next().expect("one answer more") {
                None => Ok(()),
                Some(kind) => Err(Error::new(*kind, Step::Claim, "no")),
            }
        }));
        let kind = got.err().map(|error| error.kind());
        (kind, answers.len() - left.len())
    }

    #[test]
    fn a_name_that_changes_its_kind_between_two_asks_is_asked_for_again() {
        let (no, other) = (Some(ErrorKind::Conflict), Some(ErrorKind::Denied));
        let write = Some(Mode::Write);
        assert_eq!(asked(&[None], write), (None, 1));
        assert_eq!(asked(&[no, None], write), (None, 2));
        assert_eq!(asked(&[no, no, None], write), (None, 3));
        assert_eq!(asked(&[no, no, no, other], write), (other, 4));
        assert_eq!(asked(&[no], None), (no, 1), "a semaphore has no other kind");
        assert_eq!(asked(&[no; AGAIN + 1], write), (no, AGAIN + 1));
    }

    #[test]
    fn a_grant_covers_what_excludes_no_more_than_it() {
        let [alone, shared] = [args(&[]), args(&["--shared"])];
        let two = args(&["--permits", "2", "--of", "4"]);
        let permits = |count| Mode::Permits { count, of: 4 };
        for (held, expected) in [
            (Mode::Mutex, [true, true, false]),
            (Mode::Write, [true, true, false]),
            (Mode::Read, [false, true, false]),
            (permits(1), [false, false, false]),
            (permits(2), [false, false, true]),
            (permits(4), [false, false, true]),
        ] {
            let found = [&alone, &shared, &two].map(|args| covers(held, args));
            assert_eq!(found, expected, "{held}");
        }
    }
}
