//! Lines for people.

use std::time::{Duration, SystemTime};

use leasehold::engine::{ClaimView, Clock, LineView};

use crate::plain::{cut, line as plain_line};

const HEAD: [&str; 9] = [
    "NAME", "FENCE", "MODE", "HOST", "PID", "SINCE", "LEASE", "LAPSES", "COMMAND",
];

type Row = [String; 9];

/// Longer cells are cut: a width has a limit.
const CELL: usize = 600;

/// A row per claim: holders with their fence, waiters with their place in line. Rows are cut to the width of a terminal.
pub(super) fn render(lines: &[LineView], width: Option<usize>) -> String {
    if lines.is_empty() {
        return "nothing is locked\n".to_owned();
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_micros(Clock::boot().wall());
    let mut rows = vec![HEAD.map(str::to_owned)];
    for line in lines {
        let holders = line.holders.iter().map(|claim| {
            let fence = claim
                .fence
                .map_or_else(String::new, |fence| fence.to_string());
            row(line, fence, claim, now)
        });
        rows.extend(holders);
        let waiters = line.waiters.iter().enumerate();
        rows.extend(waiters.map(|(at, claim)| row(line, format!("waits #{}", at + 1), claim, now)));
    }
    aligned(&rows, width.unwrap_or(usize::MAX))
}

fn row(line: &LineView, place: String, claim: &ClaimView, now: SystemTime) -> Row {
    let who = claim.who.as_ref();
    let told = |what: Option<String>| what.unwrap_or_else(|| "?".to_owned());
    [
        plain_line(line.name.as_str()),
        place,
        claim.mode.to_string(),
        told(who.map(|who| cut(&plain_line(&who.host), CELL))),
        told(who.map(|who| who.pid.to_string())),
        since(claim, now),
        told(claim.lease.map(exact)),
        distance(claim.until, now),
        told(who.map(|who| cut(&plain_line(&who.command), CELL))),
    ]
}

/// Since when it holds, or waits. An engine that knows only when a holder asked: it holds for that long at most.
fn since(claim: &ClaimView, now: SystemTime) -> String {
    let ago = |time: SystemTime| distance(time.min(now), now);
    match (claim.held, claim.fence) {
        (Some(held), _) => ago(held),
        (None, Some(_)) => format!("<{}", ago(claim.since)),
        (None, None) => ago(claim.since),
    }
}

/// `3s ago`, `in 9s`.
fn distance(time: SystemTime, now: SystemTime) -> String {
    match time.duration_since(now) {
        Ok(ahead) if !ahead.is_zero() => format!("in {}", rough(ahead)),
        Ok(_) => "0s ago".to_owned(),
        Err(behind) => format!("{} ago", rough(behind.duration())),
    }
}

/// As it was asked for, or as the server gave it: `10s`, `13.334s`.
fn exact(duration: Duration) -> String {
    format!("{duration:?}")
}

/// The two largest units.
fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        secs @ 0..60 => format!("{secs}s"),
        secs @ 60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        secs @ 3_600..86_400 => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
        secs => format!("{}d{:02}h", secs / 86_400, secs / 3_600 % 24),
    }
}

fn aligned(rows: &[Row], most: usize) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let row = cells.collect::<Vec<_>>().join("  ");
        text += &cut(row.trim_end(), most);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::engine::{Identity, Mode};
    use leasehold::{Fence, Name};

    #[test]
    fn distances_show_two_units() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(distance(now + Duration::from_secs(9), now), "in 9s");
        assert_eq!(distance(now - Duration::from_secs(61), now), "1m01s ago");
        assert_eq!(distance(now - Duration::from_secs(7_260), now), "2h01m ago");
        assert_eq!(
            distance(now - Duration::from_secs(90_000), now),
            "1d01h ago"
        );
    }

    #[test]
    fn a_holder_is_shown_since_it_holds() {
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let claim = |fence| ClaimView::new(fence, Mode::Mutex, None, at(100), at(200));
        let holds = Some(Fence::new(1));
        assert_eq!(since(&claim(holds).held(at(121)), at(124)), "3s ago");
        assert_eq!(since(&claim(holds), at(124)), "<24s ago");
        assert_eq!(since(&claim(None), at(124)), "24s ago");
        // A fence may be a little ahead of the clock.
        assert_eq!(since(&claim(holds).held(at(125)), at(124)), "0s ago");
    }

    #[test]
    fn columns_line_up_and_rows_end_with_the_terminal() {
        let claim = |fence, command: &str| {
            let who = Identity::new("host".repeat(20_000), 7, command);
            ClaimView::new(
                fence,
                Mode::Mutex,
                Some(who),
                SystemTime::UNIX_EPOCH,
                SystemTime::UNIX_EPOCH,
            )
        };
        let name = Name::new("x").unwrap();
        let claims = [claim(Some(Fence::new(42)), "a"), claim(None, "b")];
        let view = [LineView::new(name, claims)];
        let text = render(&view, None);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].contains("42") && lines[2].contains("waits #1"),
            "{text}"
        );
        // In characters: a host that was cut ends with one of three bytes.
        let at = |line: &str, c: char| line.chars().position(|found| found == c);
        let command = lines[0].find("COMMAND");
        assert_eq!(command, at(lines[2], 'b'), "{text}");
        let narrow = render(&view, Some(20));
        assert!(narrow.lines().all(|line| line.chars().count() <= 20));
    }
}
