//! Removing what is long idle.

use super::op::Answer;
use super::wire::{Trouble, Wire};
use super::world::World;

/// How long a name is idle before its row may go, in microseconds.
const IDLE: u64 = 600_000_000;

/// How long after the floor was raised rows below it may go: longer than any statement that still knows the old one.
const SETTLED: u64 = 60_000_000;

/// Sessions not heard of for a day, in microseconds.
const DAY: u64 = 86_400_000_000;

/// Removes old mail, old sessions, and the rows of names that nobody has used for a while.
///
/// A name's next fence must stay above its last. So the floor is raised first, for all to see, and only the next
/// round removes rows, those below the floor.
pub(super) async fn clean(world: &World, wire: &mut Wire) -> Result<Answer, Trouble> {
    let (t, now) = (&world.tables, world.now());
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
        "crowd = 0 AND id IS NULL AND since < {}",
        now.saturating_sub(IDLE)
    );
    let mut packet = vec![
        format!("DELETE FROM {} WHERE until < {now}", t.mail),
        format!(
            "DELETE FROM {} WHERE seen < {}",
            t.session,
            now.saturating_sub(DAY)
        ),
    ];
    if settled {
        packet.push(format!(
            "DELETE FROM {} WHERE {idle} AND last <= {floor}",
            t.line
        ));
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
