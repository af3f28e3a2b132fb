//! PostgreSQL: joining and leaving a crowd in one packet, so that no round trip passes while the line's row is locked.
//!
//! Only what a contended mutex does all the time: a claim that waits joins behind others, and the holder hands over to
//! the next while more wait. Everything else, and every line in which a claim has run out of time, takes the careful
//! way: the statements then change nothing.

use super::dialect::Dialect;
use super::op::{Answer, Owner};
use super::post::Address;
use super::rows::{self, CROWD, Key, cell, number};
use super::wire::{Rows, Trouble, Wire};
use super::world::World;
use crate::claim::{Claim, ClaimId, SessionId};
use crate::clock::micros;
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::{Change, Held, Release, Standing, What};

/// Whether the line is worth trying: it was a crowd when this process last looked.
pub(super) fn likely(world: &World, claim: &Claim) -> bool {
    let one = claim.mode.capacity() == 1;
    one && is_postgres(world.tables.dialect) && world.crowded.has(Key::of(&claim.name))
}

fn is_postgres(dialect: Dialect) -> bool {
    dialect.word() == "postgres"
}

/// Joins the end of a crowd; none if the careful way has to decide.
pub(super) async fn join(
    world: &World,
    wire: &mut Wire,
    claim: &Claim,
    owner: &Owner,
) -> Result<Option<Answer>, Trouble> {
    let (t, d) = (&world.tables, world.tables.dialect);
    let (line, crowd, lease) = (&t.line, &t.claim, micros(claim.lease));
    let (k, id) = (d.id(Key::of(&claim.name).0), d.id(claim.id.as_u128()));
    let (session, all) = (d.id(owner.session.as_u128()), d.id(CROWD));
    // A place in line that a crash of the server loses is taken again: the next heartbeat does not find it.
    let statement = format!(
        "WITH clock AS (SELECT {} AS now), \
         crowd AS (SELECT place, id, deadline FROM {crowd} WHERE k = {k}), \
         final AS (SELECT place, deadline FROM crowd ORDER BY place DESC LIMIT 1), \
         joined AS (INSERT INTO {crowd} (k, place, id, session, weight, lease, since, deadline, fence) \
           SELECT {k}, final.place + 1, {id}, {session}, 1, {lease}, now, now + {lease}, 0 \
           FROM {line} AS line, final, clock WHERE line.k = {k} AND line.id = {all} AND line.capacity = 1 \
           AND line.last <= {PLENTY} \
           AND NOT EXISTS (SELECT FROM crowd WHERE crowd.deadline <= now OR crowd.id = {id}) RETURNING since) \
         SELECT (SELECT count(*) FROM crowd), final.deadline - joined.since FROM joined, final",
        world.now()
    );
    let rows = run(
        world,
        wire,
        &k,
        "SET LOCAL synchronous_commit = off; ",
        &statement,
    )
    .await?;
    let Some(row) = rows.first() else {
        world.crowded.remove(Key::of(&claim.name));
        return Ok(None);
    };
    let look_again = std::time::Duration::from_micros(number(row, 1)?);
    let ahead = u32::try_from(number(row, 0)?).unwrap_or(u32::MAX);
    let standing = Standing::Waiting { ahead, look_again };
    Ok(Some(Answer::Standings(vec![standing])))
}

/// Hands the lock over to the next of a crowd; none if the careful way has to decide.
pub(super) async fn leave(
    world: &World,
    wire: &mut Wire,
    claim: &Claim,
    used: u32,
) -> Result<Option<Answer>, Trouble> {
    let (t, d, key) = (&world.tables, world.tables.dialect, Key::of(&claim.name));
    let (line, crowd, k, block) = (&t.line, &t.claim, d.id(key.0), FENCE_BLOCK - 1);
    let (id, all, used) = (
        d.id(claim.id.as_u128()),
        d.id(CROWD),
        used.clamp(1, FENCE_BLOCK) - 1,
    );
    let floor = match &world.settings.clock {
        None => "now".to_owned(),
        Some(clock) => clock.wall().to_string(),
    };
    let (to, ours) = ("encode(session, 'hex'::text)", world.address().channel());
    let channel = format!("'leasehold_'::text || substr({to}, 1, 16)");
    let body = format!(
        "{to} || ' '::text || encode(id, 'hex'::text) || ' granted '::text || fence::text || ' 1'::text"
    );
    let statement = format!(
        "WITH clock AS (SELECT {} AS now), \
         crowd AS (SELECT place, id, session, deadline, fence, row_number() OVER (ORDER BY place) AS n, \
           count(*) OVER () AS claims FROM {crowd} WHERE k = {k}), \
         me AS (SELECT crowd.place, crowd.fence, line.last, now FROM crowd, {line} AS line, clock \
           WHERE line.k = {k} AND line.id = {all} AND line.capacity = 1 AND line.last <= {PLENTY} \
           AND n = 1 AND crowd.id = {id} AND crowd.fence > 0 AND claims > 2 \
           AND NOT EXISTS (SELECT FROM crowd AS late WHERE late.deadline <= now)), \
         next AS (SELECT crowd.place, crowd.id, crowd.session, me.place AS mine, greatest( \
             CASE WHEN me.last = me.fence + {block} THEN me.fence + {used} ELSE me.last END, {floor}) + 1 AS fence \
           FROM crowd, me WHERE n = 2 AND get_byte(crowd.session, 7) & 1 = 0), \
         gone AS (DELETE FROM {crowd} AS c USING next WHERE c.k = {k} AND c.place = next.mine), \
         given AS (UPDATE {crowd} AS c SET fence = next.fence FROM next WHERE c.k = {k} AND c.place = next.place), \
         spent AS (UPDATE {line} AS line SET last = next.fence + {block} FROM next WHERE line.k = {k}) \
         SELECT {to}, encode(id, 'hex'::text), fence, \
           CASE WHEN {channel} <> '{ours}'::text THEN pg_notify({channel}, {body})::text END FROM next",
        world.now()
    );
    let rows = run(world, wire, &k, "", &statement).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let session = SessionId::from_u128(rows::hex(cell(row, 0)?)?);
    let held = Held {
        fence: Fence::new(number(row, 2)?),
        block: FENCE_BLOCK,
        wanted: true,
    };
    let granted = Change {
        session,
        claim: ClaimId::from_u128(rows::hex(cell(row, 1)?)?),
        what: What::Granted(held),
    };
    if Address::of(session) == world.address() {
        world.tell(&[granted], None);
    }
    Ok(Some(Answer::Released(Release::Released)))
}

/// Above this the careful way looks whether fences are left.
const PLENTY: i64 = i64::MAX - (1 << 40);

/// One packet: the row is locked by a statement of its own, so that the next one sees what the last holder of the row
/// has done.
async fn run(
    world: &World,
    wire: &mut Wire,
    key: &str,
    how: &str,
    statement: &str,
) -> Result<Rows, Trouble> {
    let packet = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 4000; {how}\
         SELECT 1 FROM {} WHERE k = {key} FOR UPDATE; {statement}; COMMIT",
        world.tables.line
    );
    let mut answers = wire.run(&packet).await?;
    let _commit = answers.pop();
    Ok(answers.pop().unwrap_or_default())
}
