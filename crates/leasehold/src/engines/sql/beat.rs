//! Heartbeats. Claims that hold alone, which is most of them, are renewed in one round trip.

use std::collections::HashMap;
use std::sync::Arc;

use super::op::{Answer, Op, carefully};
use super::rows::{Key, cell, hex, number};
use super::wire::{Rows, Trouble, What, Wire};
use super::world::World;
use crate::claim::{Claim, SessionId};
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::{Held, Standing};

/// Renews these claims. Those that are not alone in their line, or not in it, take the careful way afterwards.
pub(super) async fn beat(
    world: &World,
    wire: &mut Wire,
    claims: &[Arc<Claim>],
    session: SessionId,
) -> Result<Answer, Trouble> {
    let alone = claims.iter().filter(|claim| !world.watch.waits(claim.id));
    let alone: Vec<_> = alone.map(Arc::as_ref).collect();
    let renewed = match alone.is_empty() {
        true => HashMap::new(),
        false => {
            let rows = wire.run(&packet(world, &alone, session)).await?;
            let [.., renewed, _, _] = &rows[..] else {
                return Err(Trouble::new(What::Other, "rows are missing"));
            };
            fences(renewed)?
        }
    };
    let rest = claims.iter();
    let rest = rest.filter(|claim| !renewed.contains_key(&claim.id.as_u128()));
    let rest: Vec<_> = rest.cloned().collect();
    let mut others = match rest.is_empty() {
        true => Vec::new(),
        false => {
            let keys: Vec<_> = rest.iter().map(|claim| Key::of(&claim.name)).collect();
            match carefully(&Op::Beat(rest, session), world, wire, &keys).await? {
                Answer::Standings(standings) => standings,
                other => return Ok(other),
            }
        }
    }
    .into_iter();
    let standings = claims
        .iter()
        .map(|claim| match renewed.get(&claim.id.as_u128()) {
            Some(fence) => Standing::Held(Held {
                fence: *fence,
                block: FENCE_BLOCK,
                wanted: false,
            }),
            None => others.next().unwrap_or(Standing::Unheard),
        });
    Ok(Answer::Standings(standings.collect()))
}

/// One transaction that locks the rows in the order of their keys, as everybody does, renews the claims that are alone
/// in theirs, and says which these are.
fn packet(world: &World, claims: &[&Claim], session: SessionId) -> String {
    let (tables, d, now) = (&world.tables, world.tables.dialect, world.now());
    let mut keys: Vec<_> = claims.iter().map(|claim| Key::of(&claim.name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<_> = keys.iter().map(|key| d.id(key.0)).collect();
    let ids: Vec<_> = claims
        .iter()
        .map(|claim| d.id(claim.id.as_u128()))
        .collect();
    let (line, keys, ids) = (&tables.line, keys.join(", "), ids.join(", "));
    let alone = format!("k IN ({keys}) AND id IN ({ids}) AND crowd = 0 AND fence > 0");
    let mut packet: Vec<String> = d.begin().iter().map(|s| (*s).into()).collect();
    if !d.for_update().is_empty() {
        let lock = d.for_update();
        packet.push(format!(
            "SELECT 1 FROM {line} WHERE k IN ({keys}) ORDER BY k{lock}"
        ));
    }
    packet.extend([
        format!(
            "UPDATE {line} SET deadline = CASE WHEN deadline < {now} + lease THEN {now} + lease ELSE deadline END \
             WHERE {alone} AND deadline > {now}"
        ),
        tables.seen(session, &now),
        format!("SELECT {}, fence FROM {line} WHERE {alone} AND deadline > {now}", d.hex("id")),
        "COMMIT".to_owned(),
        // A statement without rows at the end of a packet is not told by every client.
        "SELECT 1".to_owned(),
    ]);
    packet.join("; ")
}

fn fences(rows: &Rows) -> Result<HashMap<u128, Fence>, Trouble> {
    let fences = rows.iter().map(|row| {
        let id = hex(cell(row, 0)?)?;
        Ok((id, Fence::new(number(row, 1)?)))
    });
    fences.collect()
}
