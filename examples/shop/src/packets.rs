//! The red packet: parts that were drawn at random before, each user draws one part at most.

use std::time::Duration;

use axum::http::StatusCode;
use leasehold::Ran;

use crate::answer::{Outcome, Problem};
use crate::app::App;

/// For how long a draw is remembered.
const DAY: Duration = Duration::from_secs(86_400);

/// What a user has drawn, in cents; zero if the packet was empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The cents.
    pub cents: u64,
    /// Whether an earlier request drew them.
    pub before: bool,
}

/// Splits an amount into parts, each of at least one cent, and puts them into a packet.
///
/// # Errors
/// Those of Redis; and 400 if there is not a cent for each part.
pub async fn wrap(app: &App, packet: u64, cents: u64, parts: u64) -> Outcome<()> {
    if parts == 0 || cents < parts {
        let what =
            "a packet has one part or more, and a cent for each: give more cents or fewer parts";
        return Err(Problem::refused(StatusCode::BAD_REQUEST, what));
    }
    app.stock.fill_packet(packet, &split(cents, parts)).await
}

fn split(mut cents: u64, parts: u64) -> Vec<u64> {
    let mut part = |behind: u64| {
        // Up to twice the mean of what is left, and a cent stays for each part behind this one.
        let most = (2 * cents / (behind + 1)).min(cents - behind).max(1);
        let part = match behind {
            0 => cents,
            _ => rand::random_range(1..=most),
        };
        cents -= part;
        part
    };
    (0..parts).rev().map(&mut part).collect()
}

/// Draws for a user, once: a part that was taken by a process that then died is not taken again, a person has to look.
///
/// # Errors
/// Those of the lock, of its store, and of Redis.
pub async fn draw(app: &App, packet: u64, user: u64) -> Outcome<Drawn> {
    let once = app.locks.once(format!("packet:{packet}:{user}"), DAY);
    let take = async |_: &leasehold::Guard| {
        tokio::time::sleep(app.settings.think).await;
        let part = app.stock.next_part(packet).await?;
        Ok::<_, Problem>(part.unwrap_or(0).to_string())
    };
    let (text, before) = match once.at_most_once().run(take).await? {
        Ran::Done(cents) => (cents.into_bytes(), false),
        Ran::AlreadyDone(done) => (done.result, true),
        // Interrupted, or still under way.
        _ => {
            let what = "an earlier draw of this user did not say how it ended: look at the books";
            return Err(Problem::refused(StatusCode::CONFLICT, what));
        }
    };
    let cents = String::from_utf8_lossy(&text).parse().unwrap_or(0);
    Ok(Drawn { cents, before })
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn the_parts_are_the_packet() {
        for parts in [1, 2, 10, 99, 100] {
            let split = split(100, parts);
            assert_eq!(split.len() as u64, parts);
            assert!(split.iter().all(|part| *part > 0), "{split:?}");
            assert_eq!(split.iter().sum::<u64>(), 100, "{split:?}");
        }
    }
}
