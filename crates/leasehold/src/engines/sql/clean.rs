//! Removing what is long idle.

use super::op::Answer;
use super::rows::{FREE, Lock};
use super::wire::{Trouble, Wire};
use super::world::World;

/// How long a name is idle before its row may go, in microseconds.
const IDLE: u64 = 600_000_000;

/// How long after the floor was raised rows below it may go: longer than any statement that still knows the old one.
const SETTLED: u64 = 60_000_000;

/// Sessions not heard of for a day, in microseconds.
const DAY: u64 = 86_400_000_000;

/// How many evictions are remembered.
const EVICTIONS: u32 = 10_000;

/// How many lines go in one step.
const AT_ONCE: u32 = 500;

/// Removes old mail, old sessions, old evictions, and the rows of names that were not used for a while.
///
/// A name's next fence must stay above its last. So the floor is raised first, for all to see, and only the next
/// round removes rows, those below the floor.
pub(super) async fn clean(world: &World, wire: &mut Wire) -> Result<Answer, Trouble> {
    let (t, now) = (world.tables(), world.now());
    let clock = format!("(SELECT {now} AS now) AS clock");
    let rows = wire
        .run(&format!(
            "SELECT now, floor, floor_at FROM {}, {clock}",
            t.meta
        ))
        .await?;
    let row = rows.first().and_then(|rows| rows.first());
    let row = row.map_or(&[][..], Vec::as_slice);
    let (now, floor) = (super::rows::number(row, 0)?, super::rows::number(row, 1)?);
    let settled = super::rows::number(row, 2)?.saturating_add(SETTLED) <= now;
    let idle = format!(
        "id = {} AND since < {}",
        t.dialect.id(FREE),
        now.saturating_sub(IDLE)
    );
    let mut packet = vec![
        format!("DELETE FROM {} WHERE until < {now}", t.mail),
        format!(
            "DELETE FROM {} WHERE seen < {}",
            t.session,
            now.saturating_sub(DAY)
        ),
        // By number: the times of SQLite's rows are those of different boots.
        format!(
            "DELETE FROM {table} WHERE id <= (SELECT id FROM (SELECT max(id) - {EVICTIONS} AS id FROM {table}) AS old)",
            table = t.eviction
        ),
    ];
    if settled {
        remove(world, wire, &format!("{idle} AND last <= {floor}")).await?;
    }
    packet.push(format!(
        "SELECT coalesce(max(last), 0) FROM {} WHERE {idle}",
        t.line
    ));
    let rows = wire.run(&packet.join("; ")).await?;
    let row = rows.last().and_then(|rows| rows.first());
    let last = super::rows::number(row.map_or(&[][..], Vec::as_slice), 0)?;
    if last > floor {
        let raise = format!(
            "UPDATE {} SET floor = {last}, floor_at = {now} WHERE floor < {last}",
            t.meta
        );
        let _ = wire.run(&raise).await?;
    }
    Ok(Answer::Done)
}

/// Removes some lines that are not locked, so that it does not wait.
async fn remove(world: &World, wire: &mut Wire, which: &str) -> Result<(), Trouble> {
    let (t, d) = (world.tables(), world.tables().dialect);
    let skip = match d.lock(Lock::Wait) {
        "" => String::new(),
        lock => format!("{lock} SKIP LOCKED"),
    };
    let mut packet = vec![d.begin().to_owned()];
    packet.push(format!(
        "SELECT {} FROM {} WHERE {which} ORDER BY k LIMIT {AT_ONCE}{skip}",
        d.hex("k"),
        t.line
    ));
    let rows = wire.run(&packet.join("; ")).await?;
    let keys = rows.last().map_or(&[][..], Vec::as_slice).iter();
    let keys = keys.filter_map(|row| super::rows::hex(row.first()?.as_deref()?).ok());
    let keys: Vec<_> = keys.map(|key| d.id(key)).collect();
    let done = match keys.is_empty() {
        true => "COMMIT".to_owned(),
        false => format!(
            "DELETE FROM {} WHERE k IN ({}); COMMIT",
            t.line,
            keys.join(", ")
        ),
    };
    wire.run(&done).await.map(drop)
}
