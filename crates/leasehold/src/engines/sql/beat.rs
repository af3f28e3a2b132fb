//! Heartbeats. As long as nobody in the line has run out of time they change nothing but deadlines, so one round trip
//! does for all the claims of a session, and no row stays locked while a packet is under way.

use std::sync::Arc;

use super::op::{Answer, Op, carefully, find};
use super::rows::{self, Key, number};
use super::wire::{Trouble, What, Wire};
use super::world::World;
use crate::claim::{Claim, SessionId};
use crate::line::{Moment, Place};

/// Renews these claims. Those in whose line something has to be done take the careful way afterwards.
pub(super) async fn beat(
    world: &World,
    wire: &mut Wire,
    claims: &[Arc<Claim>],
    session: SessionId,
) -> Result<Answer, Trouble> {
    let mut keys: Vec<_> = claims.iter().map(|claim| Key::of(&claim.name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows = wire.run(&packet(world, &keys, claims, session)).await?;
    let [.., lines, places, _, _, _, clock, _, _] = &rows[..] else {
        return Err(Trouble::new(What::Other, "rows are missing"));
    };
    let now = number(clock.first().map_or(&[][..], Vec::as_slice), 0)?;
    let mut lines = rows::lines(lines, places)?;
    let at = Moment { now, floor: 0 };
    let ended = |place: &Place| place.deadline <= now;
    lines.retain(|stored| !stored.line.places().any(ended));
    for claim in claims {
        if let Some(stored) = find(&mut lines, &claim.name) {
            let _ = stored.line.heartbeat(claim.id, at);
        }
    }
    let told = claims.iter().map(|claim| {
        let stored = find(&mut lines, &claim.name)?;
        Some(stored.line.standing(claim.id, at))
    });
    let told: Vec<_> = told.collect();
    let rest = claims.iter().zip(&told).filter(|(_, told)| told.is_none());
    let rest: Vec<_> = rest.map(|(claim, _)| claim.clone()).collect();
    let mut others = Vec::new();
    if !rest.is_empty() {
        let keys: Vec<_> = rest.iter().map(|claim| Key::of(&claim.name)).collect();
        let answer = carefully(&Op::Beat(rest, session), world, wire, &keys).await?;
        if let Answer::Standings(standings) = answer {
            others = standings;
        }
    }
    let mut others = others.into_iter();
    let standings = told.into_iter().map(|told| told.or_else(|| others.next()));
    let standings: Option<Vec<_>> = standings.collect();
    let missing = || Trouble::new(What::Other, "a line's answer is missing");
    standings.map(Answer::Standings).ok_or_else(missing)
}

/// One transaction that locks the lines in the order of their keys, as everybody does, reads them, and renews the
/// claims that have time left.
fn packet(world: &World, keys: &[Key], claims: &[Arc<Claim>], session: SessionId) -> String {
    let (tables, d, now) = (&world.tables, world.tables.dialect, world.now());
    let ids: Vec<_> = claims
        .iter()
        .map(|claim| d.id(claim.id.as_u128()))
        .collect();
    let listed: Vec<_> = keys.iter().map(|key| d.id(key.0)).collect();
    let (listed, ids) = (listed.join(", "), ids.join(", "));
    let renew = |table: &str| {
        format!(
            "UPDATE {table} SET deadline = CASE WHEN deadline < {now} + lease THEN {now} + lease ELSE deadline END \
             WHERE k IN ({listed}) AND id IN ({ids}) AND deadline > {now}"
        )
    };
    let mut packet: Vec<String> = d.begin().iter().map(|s| (*s).into()).collect();
    packet.extend(tables.read(keys, true));
    packet.extend([
        renew(&tables.line),
        renew(&tables.claim),
        tables.seen(session, &now),
        format!("SELECT {now}"),
        "COMMIT".to_owned(),
        // A statement without rows at the end of a packet is not told by every client.
        "SELECT 1".to_owned(),
    ]);
    packet.join("; ")
}
