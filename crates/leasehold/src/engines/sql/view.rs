//! Looking at lines.

use std::collections::HashMap;
use std::time::Duration;

use super::op::{Answer, text};
use super::rows::{self, Key, Lock, cell, number};
use super::wire::{Rows, Trouble, Wire};
use super::world::World;
use crate::engine::{ClaimView, Identity, LineView, Mode};
use crate::name::Name;

/// The lines as the next operation would find them; nothing is written.
pub(super) async fn look(
    world: &World,
    wire: &mut Wire,
    name: Option<&Name>,
) -> Result<Answer, Trouble> {
    let (tables, d) = (world.tables(), world.tables().dialect);
    let keys: Vec<_> = name.map(Key::of).into_iter().collect();
    let mut packet = vec![d.begin_look().to_owned()];
    packet.extend(tables.read(&keys, Lock::None));
    packet.push(format!(
        "SELECT {}, {}, pid, {} FROM {}",
        d.hex("id"),
        d.hex("host"),
        d.hex("command"),
        tables.session
    ));
    packet.push("COMMIT".to_owned());
    // Last: a statement without rows at the end of a packet is not told by every client.
    packet.push(format!("SELECT {}", world.now()));
    let rows = wire.run(&packet.join("; ")).await?;
    let [.., lines, claims, sessions, _, clock] = &rows[..] else {
        return Err(Trouble::new(super::wire::What::Broken, "rows are missing"));
    };
    let sessions = identities(sessions);
    let now = number(clock.first().map_or(&[][..], Vec::as_slice), 0)?;
    let mut views = Vec::new();
    for stored in rows::lines(lines, claims).into_values() {
        let mut stored = match stored {
            Ok(stored) => stored,
            Err(trouble) if name.is_some() => return Err(trouble),
            Err(trouble) => {
                tracing::warn!(trouble.message, "a line that cannot be read is not shown");
                continue;
            }
        };
        drop(stored.line.sweep(world.moment(now)));
        let name = String::from_utf8(stored.name).ok();
        let Some(Ok(name)) = name.map(Name::new) else {
            continue;
        };
        let (line, capacity) = (&stored.line, stored.line.capacity());
        if line.is_idle() {
            continue;
        }
        let claims = line.places().map(|place| {
            let who = sessions.get(&place.session.as_u128()).cloned();
            let mode = Mode::of(place.weight, capacity);
            let (since, until) = (world.wall(place.since), world.wall(place.deadline));
            let lease = Duration::from_micros(place.lease);
            let view = ClaimView::new(place.fence, mode, who, since, until);
            view.lease(lease).held_by_fence()
        });
        views.push(LineView::new(name, claims));
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Answer::Lines(views))
}

/// Those that can be read. What is no text is shown as far as it is; a row without a number or an id is left out.
fn identities(rows: &Rows) -> HashMap<u128, Identity> {
    let identities = rows.iter().filter_map(|row| match identity(row) {
        Ok(identity) => Some(identity),
        Err(trouble) => {
            tracing::warn!(
                trouble.message,
                "a session that cannot be read is not shown"
            );
            None
        }
    });
    identities.collect()
}

fn identity(row: &[Option<String>]) -> Result<(u128, Identity), Trouble> {
    let pid = u32::try_from(number(row, 2)?).unwrap_or(0);
    let who = Identity::new(text(row, 1)?, pid, text(row, 3)?);
    Ok((rows::hex(cell(row, 0)?)?, who))
}
