//! PostgreSQL: joining and leaving a crowd in one statement each, so that no round trip passes while the line's row is
//! locked, and nothing is planned anew.
//!
//! Only what a contended mutex does all the time: a claim joins behind one that waits, and the holder hands over to the
//! next. Everything else, and every line in which a claim may have run out of time, takes the careful way: the
//! statements then change nothing.
//!
//! A statement reads the rows of claims as they were when it began, and the line's row as it is once it is locked. So
//! what may have changed between the two is decided by the line's row: a crowd keeps there how many claims it has, its
//! largest place, and a moment before which no claim runs out of time. A careful change moves `since`, a grant moves
//! `last`; while both are as they were, the first claims are as they were, and only joins can have come in between.

use super::op::Owner;
use super::post::{self, Address};
use super::quick::{PLENTY, Value};
use super::rows::{CROWD, Key, cell, number};
use super::tables::Tables;
use super::wire::{Trouble, Wire};
use super::world::World;
use crate::claim::Claim;
use crate::clock::micros;
use crate::fence::FENCE_BLOCK;
use crate::line::{LINE_MAX, Standing};

/// Whether the line is worth trying: it was a crowd when this process last looked.
pub(super) fn likely(world: &World, claim: &Claim) -> bool {
    let here = world.tables().dialect.word() == "postgres";
    here && claim.mode.capacity() == 1 && world.crowded.has(Key::of(&claim.name))
}

/// Joins the end of a crowd; none if the careful way has to decide.
pub(super) async fn join(
    world: &World,
    wire: &mut Wire,
    claim: &Claim,
    owner: &Owner,
) -> Result<Option<Standing>, Trouble> {
    let mut values = vec![
        Value::id(Key::of(&claim.name).0),
        Value::id(claim.id.as_u128()),
        Value::id(owner.session.as_u128()),
        Value::Number(micros(claim.lease)),
    ];
    values.extend(world.bound_now().map(|at| Value::Number(at.now)));
    let Some(row) = wire.row(&world.quick().join, &values).await? else {
        return Ok(None);
    };
    let look_again = std::time::Duration::from_micros(number(&row, 1)?);
    let ahead = u32::try_from(number(&row, 0)?).unwrap_or(u32::MAX);
    Ok(Some(Standing::Waiting { ahead, look_again }))
}

/// Hands the lock over to the next of a crowd; false if the careful way has to decide.
pub(super) async fn leave(
    world: &World,
    wire: &mut Wire,
    claim: &Claim,
    used: u32,
) -> Result<bool, Trouble> {
    let mut values = vec![
        Value::id(Key::of(&claim.name).0),
        Value::id(claim.id.as_u128()),
        Value::Number((used.clamp(1, FENCE_BLOCK) - 1).into()),
        Value::Bytes(world.address().0.to_be_bytes().into()),
    ];
    if let Some(at) = world.bound_now() {
        values.extend([at.now, at.floor].map(Value::Number));
    }
    let Some(row) = wire.row(&world.quick().leave, &values).await? else {
        return Ok(false);
    };
    // The statement has notified the process of the next holder, unless that is this one.
    if let Some((session, event)) = post::read(cell(&row, 0)?)
        && Address::of(session) == world.address()
    {
        world.deliver(session, event);
    }
    Ok(true)
}

/// A place in line that a crash of the server loses is taken again, because the next heartbeat does not find it: so the
/// commit need not wait for the disk. An answer that was lost is asked for the careful way, which moves `since`: the
/// first attempt, should it still wait for the row, then does nothing.
pub(super) fn join_text(tables: &Tables, now: &str) -> String {
    let (line, claim, all) = (&tables.line, &tables.claim, tables.dialect.id(CROWD));
    format!(
        "WITH moved AS (UPDATE {line} AS l SET weight = l.weight + 1, fence = l.fence + 1, \
             deadline = least(l.deadline, {now} + #4) FROM {line} AS seen \
           WHERE l.k = #1 AND seen.k = #1 AND seen.since = l.since AND l.id = {all} AND l.capacity = 1 \
             AND l.weight >= 2 AND l.weight < {LINE_MAX} AND l.last <= {PLENTY} AND l.deadline > {now} \
             AND NOT EXISTS (SELECT FROM {claim} WHERE k = #1 AND id = #2) \
           RETURNING l.weight - 1 AS ahead, l.fence AS place, {now} AS now), \
         soon AS (SELECT set_config('synchronous_commit'::text, 'off'::text, true)), \
         joined AS (INSERT INTO {claim} (k, place, id, session, weight, lease, since, deadline, fence) \
           SELECT #1, place, #2, #3, 1, #4, now, now + #4, 0 FROM moved, soon), \
         before AS (SELECT deadline FROM {claim} WHERE k = #1 ORDER BY place DESC LIMIT 1) \
         SELECT ahead, greatest(deadline - now, 0) FROM moved, before"
    )
}

pub(super) fn leave_text(tables: &Tables, now: &str, floor: &str) -> String {
    let (line, claim, all) = (&tables.line, &tables.claim, tables.dialect.id(CROWD));
    let (block, session) = (FENCE_BLOCK - 1, "encode(session, 'hex'::text)");
    format!(
        "WITH me AS (SELECT place, id, fence FROM {claim} WHERE k = #1 ORDER BY place LIMIT 1), \
         next AS (SELECT place, id, session FROM {claim} WHERE k = #1 ORDER BY place LIMIT 1 OFFSET 1), \
         spent AS (UPDATE {line} AS l SET weight = l.weight - 1, last = greatest( \
             CASE WHEN l.last = me.fence + {block} THEN me.fence + #3 ELSE l.last END, {floor}) + 1 + {block} \
           FROM {line} AS seen, me, next \
           WHERE l.k = #1 AND seen.k = #1 AND seen.since = l.since AND seen.last = l.last AND l.id = {all} \
             AND l.capacity = 1 AND l.weight >= 2 AND l.last <= {PLENTY} AND l.deadline > {now} \
             AND me.id = #2 AND me.fence > 0 AND get_byte(next.session, 7) & 1 = 0 \
           RETURNING me.place AS mine, next.place, next.id, next.session, l.last - {block} AS fence, l.weight), \
         gone AS (DELETE FROM {claim} AS c USING spent WHERE c.k = #1 AND c.place = spent.mine), \
         given AS (UPDATE {claim} AS c SET fence = spent.fence FROM spent WHERE c.k = #1 AND c.place = spent.place), \
         told AS (SELECT session, {session} || ' '::text || encode(id, 'hex'::text) || ' granted '::text || \
           fence::text || CASE WHEN weight > 1 THEN ' 1'::text ELSE ' 0'::text END AS body FROM spent) \
         SELECT body, CASE WHEN substr(session, 1, 8) <> #4 \
           THEN pg_notify('leasehold_'::text || substr({session}, 1, 16), body)::text END FROM told"
    )
}
