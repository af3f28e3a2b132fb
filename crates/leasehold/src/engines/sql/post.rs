//! Telling other processes what happened to their claims.
//!
//! A session's id says where its process listens: the upper half is the process's address, and the lowest bit of
//! that says whether it is told by a notification or looks for mail itself. Both are sent by the transaction that did
//! it, so no process is told what did not happen.

use super::rows::{hex, hex_bytes};
use super::wire::{Trouble, Wire};
use super::world::World;
use crate::claim::{ClaimId, SessionId};
use crate::clock::Micros;
use crate::engine::{Ended, Event};
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::{Change, Held, What};

/// Where a process is told things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address(pub(super) u64);

impl Address {
    pub(super) fn random(looks: bool) -> Self {
        Self(rand::random::<u64>() & !1 | u64::from(looks))
    }

    pub(super) fn of(session: SessionId) -> Self {
        Self((session.as_u128() >> 64) as u64)
    }

    /// A new session that is told things here.
    pub(super) fn session(self) -> SessionId {
        SessionId::from_u128(u128::from(self.0) << 64 | u128::from(rand::random::<u64>()))
    }

    /// Whether it looks for mail, rather than being notified.
    pub(super) const fn looks(self) -> bool {
        self.0 & 1 == 1
    }

    /// The channel it listens to.
    pub(super) fn channel(self) -> String {
        format!("leasehold_{:016x}", self.0)
    }
}

/// How long mail is kept for a process that does not look.
const KEPT: Micros = 60_000_000;

/// Longer reasons are cut: they are for people, and a notification has 8000 bytes.
pub(super) const WHY: usize = 700;

/// The statements that tell other processes what happened to their claims.
pub(super) fn send(
    world: &World,
    changes: &[Change],
    evicted: Option<&Ended>,
    now: Micros,
) -> Vec<String> {
    let (d, mail) = (world.tables().dialect, &world.tables().mail);
    let others = changes.iter();
    let others = others.filter(|change| Address::of(change.session) != world.address());
    let statements = others.map(|change| {
        let (to, body) = (Address::of(change.session), body(change, evicted));
        if to.looks() {
            let until = now.saturating_add(KEPT);
            return format!(
                "INSERT INTO {mail} (address, body, until) VALUES ({}, {}, {until})",
                d.bytes(&to.0.to_be_bytes()),
                d.bytes(body.as_bytes())
            );
        }
        let [channel, body] = [to.channel(), body]
            .map(|text| format!("convert_from({}, 'UTF8'::name)", d.bytes(text.as_bytes())));
        format!("SELECT pg_notify({channel}, {body})")
    });
    statements.collect()
}

/// Letters, digits and spaces only.
fn body(change: &Change, evicted: Option<&Ended>) -> String {
    let (session, claim) = (change.session.as_u128(), change.claim.as_u128());
    let head = format!("{session:032x} {claim:032x}");
    match (change.what, evicted) {
        (What::Granted(held), _) => {
            format!("{head} granted {} {}", held.fence, u8::from(held.wanted))
        }
        (What::Wanted, _) => format!("{head} wanted"),
        (What::Evicted, Some(Ended::Evicted { by, why })) => {
            let digits = |text: &str| -> String {
                let text = cut(text, WHY);
                text.bytes().map(|byte| format!("{byte:02x}")).collect()
            };
            format!("{head} evicted {}. {}.", digits(by), digits(why))
        }
        (What::Expired | What::Evicted, _) => format!("{head} expired"),
    }
}

/// What a notification or a piece of mail says; none if it is not ours to read.
pub(super) fn read(body: &str) -> Option<(SessionId, Event)> {
    let words: Vec<_> = body.split(' ').collect();
    let [session, claim, what @ ..] = &words[..] else {
        return None;
    };
    let session = SessionId::from_u128(hex(session).ok()?);
    let claim = ClaimId::from_u128(hex(claim).ok()?);
    let text = |digits: &str| {
        let bytes = hex_bytes(digits.trim_end_matches('.')).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let event = match what {
        ["granted", fence, wanted] => {
            let held = Held {
                fence: Fence::new(fence.parse().ok()?),
                block: FENCE_BLOCK,
                wanted: *wanted == "1",
            };
            Event::Granted(claim, held)
        }
        ["wanted"] => Event::Wanted(claim),
        ["expired"] => Event::Ended(claim, Ended::Expired),
        ["evicted", by, why] => {
            let (by, why) = (text(by)?, text(why)?);
            Event::Ended(claim, Ended::Evicted { by, why })
        }
        _ => return None,
    };
    Some((session, event))
}

/// Takes the mail of this process, and delivers it before the commit that removes it.
pub(super) async fn collect(world: &World, wire: &mut Wire) -> Result<(), Trouble> {
    let (d, mail) = (world.tables().dialect, &world.tables().mail);
    let mine = format!("address = {}", d.bytes(&world.address().0.to_be_bytes()));
    let look = format!(
        "SELECT id, {} FROM {mail} WHERE {mine} ORDER BY id",
        d.hex("body")
    );
    let rows = wire.run(&look).await?;
    let rows = rows.first().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return Ok(());
    }
    for row in rows {
        match super::op::text(row, 1) {
            Ok(body) => world.hear(&body),
            Err(trouble) => tracing::debug!(trouble.message, "mail that cannot be read"),
        }
    }
    let ids: Vec<_> = rows
        .iter()
        .filter_map(|row| row.first().cloned().flatten())
        .collect();
    // Exactly these: another may have been written meanwhile with a smaller id.
    let take = format!(
        "DELETE FROM {mail} WHERE {mine} AND id IN ({})",
        ids.join(", ")
    );
    // What stays is told again, which does no harm.
    if let Err(trouble) = wire.run(&take).await {
        tracing::debug!(trouble.message, "mail that was read was not removed");
    }
    Ok(())
}

/// At most so many bytes of a text.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    /// Every role of a database can send a notification: whatever it says, it is read or left alone.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_client_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "notice",
            words: &[
                b" ",
                b".",
                b" granted ",
                b" wanted",
                b" expired",
                b" evicted ",
                b"00",
                b"ff",
            ],
        };
        let seed = format!("{:032x} {:032x} evicted 6d. 6e.", 1, 2).into_bytes();
        fuzz.run(&[seed], |input| {
            let text = String::from_utf8_lossy(input);
            let event = read(&text).map(|(_, event)| std::mem::discriminant(&event));
            (event, text.split(' ').count().min(8), cut(&text, 9).len())
        });
    }
}
