//! `leasehold status`: who holds what, and who waits.

mod json;
mod table;

use std::io::IsTerminal;
use std::time::Duration;

use leasehold::Name;
use leasehold::engine::{LineView, Query};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Common, StatusArgs};
use crate::exit::Failure;

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Moves to the top left and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) async fn status(args: &StatusArgs, common: &Common) -> Result<u8, Failure> {
    let query = match &args.name {
        Some(name) => Query::name(Name::new(name)?),
        None => Query::all(),
    };
    let client = crate::connect(common, None).await?;
    if args.watch {
        watch(args, &client, &query).await?;
    } else {
        let lines = client.inspect(&query).await?;
        crate::print(&rendered(args, &lines))?;
    }
    let _ = client.shutdown(Duration::from_secs(1)).await;
    Ok(0)
}

fn rendered(args: &StatusArgs, lines: &[LineView]) -> String {
    match args.json {
        true => json::render(lines),
        false => table::render(lines),
    }
}

/// Shows it again whenever something changed, until interrupted.
async fn watch(
    args: &StatusArgs,
    client: &leasehold::Client,
    query: &Query,
) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // On a terminal the ages tick; in a pipe only what happened to a claim is news.
    let live = std::io::stdout().is_terminal() && !args.json;
    let mut before = None;
    loop {
        let lines = client.inspect(query).await?;
        let text = rendered(args, &lines);
        let now = if live { text.clone() } else { news(&lines) };
        if before.as_ref() != Some(&now) {
            let clear = if live { CLEAR } else { "" };
            crate::print(&format!("{clear}{text}"))?;
            before = Some(now);
        }
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// What makes two looks differ: everything but the deadlines, which move with every renewal.
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
