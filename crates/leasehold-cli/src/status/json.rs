//! Lines for programs.

use std::time::SystemTime;

use leasehold::engine::{ClaimView, LineView};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    holders: Vec<Claim<'a>>,
    waiters: Vec<Claim<'a>>,
}

/// A holder has a fence, a waiter a position: 1 is the next.
#[derive(Serialize)]
struct Claim<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    mode: String,
    host: Option<&'a str>,
    pid: Option<u32>,
    command: Option<&'a str>,
    since: String,
    /// Of a holder: since when it holds, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_since: Option<String>,
    until: String,
    /// How long the engine keeps it after its session's last word, where that is known.
    lease_ms: Option<u128>,
}

/// One array on one line.
pub(super) fn render(lines: &[LineView]) -> String {
    let lines: Vec<_> = lines.iter().map(line).collect();
    let text = serde_json::to_string(&lines);
    text.unwrap_or_else(|_| "[]".to_owned()) + "\n"
}

fn line(view: &LineView) -> Line<'_> {
    let waiters = view.waiters.iter().enumerate();
    Line {
        name: view.name.as_str(),
        holders: view.holders.iter().map(|view| claim(view, None)).collect(),
        waiters: waiters
            .map(|(at, view)| claim(view, Some(at + 1)))
            .collect(),
    }
}

fn claim(view: &ClaimView, position: Option<usize>) -> Claim<'_> {
    let who = view.who.as_ref();
    Claim {
        fence: view.fence.map(leasehold::Fence::get),
        position,
        mode: view.mode.to_string(),
        host: who.map(|who| who.host.as_str()),
        pid: who.map(|who| who.pid),
        command: who.map(|who| who.command.as_str()),
        since: rfc3339(view.since),
        held_since: view.held.map(rfc3339),
        until: rfc3339(view.until),
        lease_ms: view.lease.map(|lease| lease.as_millis()),
    }
}

/// In UTC, to the microsecond. A time no calendar has is left empty.
fn rfc3339(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time);
    time.map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_500);
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20.500000Z");
    }

    #[test]
    fn nothing_is_an_empty_array() {
        assert_eq!(render(&[]), "[]\n");
    }
}
