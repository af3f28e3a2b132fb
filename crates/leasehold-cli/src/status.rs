//! `leasehold status`: which processes hold what, and which wait.

mod json;
mod table;

use std::io::IsTerminal;
use std::time::Duration;

use leasehold::engine::{Identity, LineView, Query};
use leasehold::{Client, ErrorKind, Name};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Common, StatusArgs};
use crate::exit::{Exit, Failure};
use crate::place::Place;
use crate::plain::{plain, plain_json};

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Moves to the top left and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) async fn status(args: &StatusArgs, common: &Common) -> Result<u8, Failure> {
    let query = match &args.name {
        Some(name) => Query::name(Name::new(name)?),
        None => Query::all(),
    };
    let client = crate::connect(&Place::given(common)?, Identity::of_this_process()).await?;
    let code = match args.watch {
        true => watch(args, &client, &query).await?,
        false => {
            let lines = client.inspect(&query).await?;
            crate::print_raw(&rendered(args, &lines))?;
            match args.name.is_some() && lines.is_empty() {
                true => Exit::Free.code(),
                false => 0,
            }
        }
    };
    let _ = client.shutdown(Duration::from_secs(1)).await;
    Ok(code)
}

/// Already filtered.
fn rendered(args: &StatusArgs, lines: &[LineView]) -> String {
    if args.json {
        return plain_json(&json::render(lines));
    }
    plain(&match &args.name {
        Some(name) if lines.is_empty() => format!("{name} is free\n"),
        _ => table::render(lines, width()),
    })
}

/// How wide the terminal is, if there is one.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Shows it again whenever something changed, until interrupted. An engine that cannot be reached for a while is said
/// once, and asked again.
async fn watch(args: &StatusArgs, client: &Client, query: &Query) -> Result<u8, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // On a terminal the ages tick; in a pipe only what happened to a claim is news.
    let live = std::io::stdout().is_terminal() && !args.json;
    let (mut before, mut failing) = (None, false);
    loop {
        match client.inspect(query).await {
            Ok(lines) => {
                failing = false;
                let text = rendered(args, &lines);
                let now = if live { text.clone() } else { news(&lines) };
                if before.as_ref() != Some(&now) {
                    let clear = if live { CLEAR } else { "" };
                    crate::print_raw(&format!("{clear}{text}"))?;
                    before = Some(now);
                }
            }
            Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut) => {
                return Err(error.into());
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    crate::say(&format!("{}; asking again", Failure::from(error)));
                }
                before = None;
            }
        }
        tokio::select! {
            _ = interrupt.recv() => return Ok(0),
            _ = terminate.recv() => return Ok(0),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The part of a look that is compared with the next: everything but the deadlines, which move with every renewal.
fn news(lines: &[LineView]) -> String {
    let claims = lines.iter().flat_map(|line| {
        let claims = line.holders.iter().chain(&line.waiters);
        claims.map(|claim| {
            format!(
                "{:?} {:?} {:?} {:?}\n",
                line.name, claim.fence, claim.mode, claim.who
            )
        })
    });
    claims.collect()
}
