//! Heartbeats. As long as no claim in a line has run out of time they change nothing but deadlines, so one round trip
//! does for all the claims of a session, and no row stays locked while a packet is under way.
//!
//! A line that another transaction has locked keeps no other line waiting: the packet does not wait for locks. If one is
//! in the way the lines are halved until those that are locked are alone, and these are waited for one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use super::op::{Answer, Op, Told, carefully};
use super::rows::{self, Key, Lock, number};
use super::wire::{Trouble, What, Wire};
use super::world::World;
use crate::claim::{Claim, SessionId};
use crate::line::{Place, Standing};

/// How many claims one packet renews.
const AT_ONCE: usize = 256;

/// Some of the claims of a heartbeat, each with its index among all.
type Batch = Vec<(usize, Arc<Claim>)>;

/// Renews these claims, and tells of each when its answer is known. An error speaks for those that were not told.
pub(super) async fn beat(
    world: &World,
    wire: &mut Wire,
    claims: &[Arc<Claim>],
    session: SessionId,
    told: &Told,
) -> Result<Answer, Trouble> {
    let all: Batch = claims.iter().cloned().enumerate().collect();
    // In the caller's order: a beat may be given up before its last packet.
    let mut packets: VecDeque<Batch> = all.chunks(AT_ONCE).map(<[_]>::to_vec).collect();
    for packet in &mut packets {
        packet.sort_by_key(|(_, claim)| Key::of(&claim.name));
    }
    let (mut late, mut failed) = (Vec::new(), None);
    while let Some(mut some) = packets.pop_front() {
        if told.is_closed() {
            return Ok(Answer::Done);
        }
        match renew(world, wire, &some, session, told).await {
            Ok(rest) => late.extend(rest),
            Err(trouble) if trouble.what != What::Again => return Err(trouble),
            Err(_) if some.len() == 1 => late.extend(some),
            Err(_) => {
                packets.push_back(some.split_off(some.len() / 2));
                packets.push_back(some);
            }
        }
    }
    let mut late = by_line(late);
    while let Some(some) = late.pop_front() {
        if told.is_closed() {
            return Ok(Answer::Done);
        }
        let line = some.iter().map(|(_, claim)| claim.clone()).collect();
        let op = Op::BeatLine(line, session);
        match carefully(&op, world, wire, &[Key::of(&some[0].1.name)]).await {
            Ok(Answer::Standings(standings)) => {
                for ((at, _), standing) in some.iter().zip(standings) {
                    let _ = told.send((*at, standing));
                }
            }
            Ok(_) => {}
            Err(trouble) if trouble.what == What::Again => late.push_back(some),
            // What this line suffers from.
            Err(trouble) if trouble.what == What::Other => failed = Some(trouble),
            Err(trouble) => return Err(trouble),
        }
    }
    failed.map_or(Ok(Answer::Done), Err)
}

fn by_line(claims: Batch) -> VecDeque<Batch> {
    let mut lines = VecDeque::<Batch>::new();
    for (at, claim) in claims {
        let line = lines.iter_mut().find(|line| line[0].1.name == claim.name);
        match line {
            Some(line) => line.push((at, claim)),
            None => lines.push_back(vec![(at, claim)]),
        }
    }
    lines
}

/// Renews claims on lines that are not locked; gives back those in whose line something has to be done.
async fn renew(
    world: &World,
    wire: &mut Wire,
    claims: &Batch,
    session: SessionId,
    told: &Told,
) -> Result<Batch, Trouble> {
    let mut keys: Vec<_> = claims
        .iter()
        .map(|(_, claim)| Key::of(&claim.name))
        .collect();
    keys.dedup();
    let rows = wire.run(&packet(world, &keys, claims, session)).await?;
    let [.., lines, places, _, _, _, _, clock, _, _] = &rows[..] else {
        return Err(Trouble::new(What::Other, "rows are missing"));
    };
    let now = number(clock.first().map_or(&[][..], Vec::as_slice), 0)?;
    let at = world.moment(now);
    let mut lines = rows::lines(lines, places);
    let ended = |place: &Place| place.deadline <= now;
    lines.retain(|_, stored| {
        let line = stored.as_ref().map(|stored| &stored.line);
        line.is_ok_and(|line| !line.places().any(ended))
    });
    for (_, claim) in claims {
        if let Some(Ok(stored)) = lines.get_mut(&Key::of(&claim.name)) {
            let _ = stored.line.heartbeat(claim.id, at);
        }
    }
    let mut rest = Batch::new();
    for (index, claim) in claims {
        match lines.get(&Key::of(&claim.name)) {
            Some(Ok(stored)) => {
                let standing: Standing = stored.line.standing(claim.id, at);
                let _ = told.send((*index, standing));
            }
            _ => rest.push((*index, claim.clone())),
        }
    }
    Ok(rest)
}

/// One transaction that locks the lines in the order of their keys, as every other does, reads them, and renews the
/// claims that have time left.
fn packet(world: &World, keys: &[Key], claims: &Batch, session: SessionId) -> String {
    let (tables, d, now) = (world.tables(), world.tables().dialect, world.now());
    let ids: Vec<_> = claims
        .iter()
        .map(|(_, claim)| d.id(claim.id.as_u128()))
        .collect();
    let listed: Vec<_> = keys.iter().map(|key| d.id(key.0)).collect();
    let (listed, ids) = (listed.join(", "), ids.join(", "));
    let these = format!("k IN ({listed}) AND id IN ({ids})");
    let renew = |table: &str| {
        format!(
            "UPDATE {table} SET deadline = CASE WHEN deadline < {now} + lease THEN {now} + lease ELSE deadline END \
             WHERE {these} AND deadline > {now}"
        )
    };
    let mut packet = vec![d.begin().to_owned()];
    packet.extend(tables.read(keys, Lock::NoWait));
    packet.extend([
        // A row of a claim is locked by foreign transactions alone.
        format!(
            "SELECT 1 FROM {} WHERE {these}{}",
            tables.claim,
            d.lock(Lock::NoWait)
        ),
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
