//! `inspect` of Redisson's locks.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::error::Trouble;
use super::super::inspect;
use super::super::words::who;
use super::channels::Waiter;
use super::hub::Hub;
use super::kind::{Kind, name_of, pattern};
use super::script::{self, Run, Shown};
use crate::claim::{Mode, RW_CAPACITY};
use crate::clock::micros;
use crate::engine::{ClaimView, Clock, Identity, LineView, Query};
use crate::name::Name;

/// Answers a query: one line, or all that are known.
pub(super) async fn look(hub: &Hub, query: &Query) -> Result<Vec<LineView>, Trouble> {
    match &query.name {
        Some(name) => Ok(line(hub, name).await?.into_iter().collect()),
        None => lines(hub).await,
    }
}

/// The holders of a name, as any kind of lock, and its waiters of this process; none if there are none.
async fn line(hub: &Hub, name: &Name) -> Result<Option<LineView>, Trouble> {
    let kinds = hub.kinds.all();
    let runs = kinds.map(|kind| Run::look(kind, name));
    let mut line = LineView {
        name: name.clone(),
        holders: Vec::new(),
        waiters: Vec::new(),
    };
    for (kind, answer) in kinds.into_iter().zip(hub.run_all(&runs).await?) {
        for row in script::shown(answer?)? {
            match row.weight {
                0 => line.waiters.push(view(&row, kind)),
                _ => line.holders.push(view(&row, kind)),
            }
        }
    }
    // The waiters of a fair lock are on the server.
    let here = hub.channels.waiters().into_iter().filter(|waiter| {
        waiter.claim.name == *name && hub.kinds.of(waiter.claim.mode) != Kind::Fair
    });
    line.waiters.extend(here.map(|waiter| waits(&waiter)));
    let idle = line.holders.is_empty() && line.waiters.is_empty();
    Ok((!idle).then_some(line))
}

/// Every name that one of ours holds, or waits for in this process. Of a name that only Java uses nothing tells that
/// it is a lock.
async fn lines(hub: &Hub) -> Result<Vec<LineView>, Trouble> {
    let mut names = inspect::names(hub.link(), &pattern(), name_of).await?;
    names.extend(
        hub.channels
            .waiters()
            .into_iter()
            .map(|waiter| waiter.claim.name.clone()),
    );
    let mut lines = BTreeMap::new();
    for name in names {
        if let Some(line) = line(hub, &name).await? {
            let _ = lines.insert(name, line);
        }
    }
    Ok(lines.into_values().collect())
}

fn view(row: &Shown, kind: Kind) -> ClaimView {
    let mode = match (kind, row.weight) {
        (Kind::ReadWrite, RW_CAPACITY) => Mode::Write,
        (Kind::ReadWrite, _) => Mode::Read,
        (Kind::Semaphore | Kind::Permits, count) => Mode::Permits { count, of: count },
        _ => Mode::Mutex,
    };
    let now = Clock::boot().wall();
    let since = if row.since == 0 { now } else { row.since };
    let until = now.saturating_add(micros(row.left));
    let whose = who(&row.who).or_else(|| thread(&row.owner));
    let view = ClaimView::new(row.fence, mode, whose, time(since), time(until));
    // Our note is written with the grant; of a lock that Java took there is none. A waiter has no weight.
    match row.since > 0 && row.weight > 0 {
        true => view.held(time(since)),
        false => view,
    }
}

/// A thread of a Redisson client: all that the layout says of it.
fn thread(owner: &str) -> Option<Identity> {
    let (client, thread) = owner.rsplit_once(':')?;
    Some(Identity::new(
        client,
        0,
        format!("Redisson, thread {thread}"),
    ))
}

fn waits(waiter: &Waiter) -> ClaimView {
    let until = Clock::boot()
        .wall()
        .saturating_add(micros(waiter.claim.lease));
    let who = Identity::clone(&waiter.who);
    ClaimView::new(
        None,
        waiter.claim.mode,
        Some(who),
        time(waiter.since),
        time(until),
    )
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
