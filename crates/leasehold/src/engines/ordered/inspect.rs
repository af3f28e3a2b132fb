//! The claims on a name as their nodes show them, those of other programs among them; evictions and requests to give up.

use super::data::{Note, REVOKE, Trace};
use super::{Fail, Kind, Server, Stored};
use crate::claim::Mode;
use crate::engine::{ClaimView, Clock, Identity, LineView, Query};
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// One claim on a name.
#[derive(Debug)]
struct Seen {
    room: String,
    nodes: Vec<Stored>,
    holds: bool,
    mode: Mode,
    note: Option<Note>,
    /// The number its fences come from.
    number: i64,
}

impl Seen {
    fn new(room: &str, stored: Stored, mode: Mode, holds: bool) -> Self {
        let note = Note::read(&stored.data);
        // A reader that was a writer says so; a number that is not older than the node is not believed.
        let older = |number: &i64| (1..stored.number).contains(number);
        let said = note.as_ref().map(|note| note.number).filter(older);
        Self {
            room: room.to_owned(),
            number: said.unwrap_or(stored.number),
            nodes: vec![stored],
            holds,
            mode,
            note,
        }
    }

    fn view<S: Server>(&self, server: &S, clock: &Clock) -> ClaimView {
        let fence = server.fence_floor().fence(self.number);
        let fence = fence.ok().filter(|_| self.holds);
        let who = self.note.as_ref().map(|note| (*note.who).clone());
        let known = self.note.as_ref().map(|note| note.lease);
        let lease = known.unwrap_or_else(|| server.timeout());
        // Only the server knows when the claim's session last spoke: it may have been just now.
        let since = self.nodes[0].since;
        let until = (clock.wall_time_of(clock.now()) + lease).max(since + lease);
        let view = ClaimView::new(fence, self.mode, who, since, until);
        known.map_or(view.clone(), |lease| view.lease(lease))
    }
}

/// The lines of one name, or of all names in use.
pub(in crate::engines) async fn inspect<S: Server>(
    server: &S,
    query: &Query,
) -> Result<Vec<LineView>> {
    let (clock, mut lines) = (Clock::boot(), Vec::new());
    let looked = async {
        let names = match &query.name {
            Some(name) => vec![name.clone()],
            None => server.names().await?,
        };
        for name in names {
            let seen = look(server, &name).await?;
            if !seen.is_empty() {
                let claims = seen.iter().map(|seen| seen.view(server, &clock));
                lines.push(LineView::new(name, claims));
            }
        }
        Ok(lines)
    };
    let looked: Result<_, Fail> = looked.await;
    looked.map_err(|fail| fail.error::<S>(Step::Inspect))
}

/// Deletes the nodes of a name's holders, or of the holder of one fence; answers how many claims that ended.
pub(in crate::engines) async fn evict<S: Server>(
    server: &S,
    name: &Name,
    fence: Option<Fence>,
    by: &Identity,
    why: &str,
) -> Result<u32> {
    let holders = holders(server, name, fence).await;
    let holders = holders.map_err(|fail| fail.error::<S>(Step::Evict))?;
    if holders.is_empty() {
        return Ok(0);
    }
    tracing::warn!(%name, %by, why, "evicted");
    let trace = Trace {
        numbers: holders.iter().map(|seen| seen.number).collect(),
        by: by.to_string(),
        why: why.to_owned(),
    };
    let evicted = async {
        // Written first: a holder that finds its node deleted finds the reason.
        server.leave_trace(name, &trace.write()).await?;
        let mut evicted = 0;
        for Seen { room, nodes, .. } in &holders {
            let mut there = false;
            for stored in nodes {
                there |= server.delete(room, &stored.node.name).await?;
            }
            evicted += u32::from(there);
        }
        Ok(evicted)
    };
    let evicted: Result<_, Fail> = evicted.await;
    evicted.map_err(|fail| fail.error::<S>(Step::Evict).perhaps())
}

/// Asks a name's holders, or the holder of one fence, to give it up; answers how many were asked.
pub(in crate::engines) async fn ask_to_release<S: Server>(
    server: &S,
    name: &Name,
    fence: Option<Fence>,
) -> Result<u32> {
    let holders = holders(server, name, fence).await;
    let holders = holders.map_err(|fail| fail.error::<S>(Step::Ask))?;
    let mut asked = 0;
    for Seen { room, nodes, .. } in holders {
        let written = server.write(&room, &nodes[0].node.name, REVOKE).await;
        let written = written.map_err(|fail| fail.error::<S>(Step::Ask).perhaps())?;
        asked += u32::from(written);
    }
    Ok(asked)
}

async fn holders<S: Server>(
    server: &S,
    name: &Name,
    fence: Option<Fence>,
) -> Result<Vec<Seen>, Fail> {
    let meant = fence.map(|fence| server.fence_floor().number(fence));
    let mut seen = look(server, name).await?;
    seen.retain(|seen| seen.holds && meant.is_none_or(|meant| meant == Some(seen.number)));
    Ok(seen)
}

/// The claims on a name, in order of arrival.
async fn look<S: Server>(server: &S, name: &Name) -> Result<Vec<Seen>, Fail> {
    let mut room = server.rooms(name, Mode::Mutex).line;
    let stored = server.look(&room).await?;
    let apart = stored.iter().any(|stored| stored.node.kind == Kind::Room);
    let mut seen = line(&room, stored);
    let permits = server.rooms(name, Mode::Permits { count: 1, of: 1 });
    if let (true, Some(permits)) = (apart, permits.permits) {
        room = server.rooms(name, Mode::Permits { count: 1, of: 1 }).line;
        let asking = server.look(&room).await?;
        let held = server.look(&permits).await?;
        seen.extend(semaphore((&room, asking), (&permits, held)));
    }
    Ok(seen)
}

/// The line of a mutex or a read/write lock.
fn line(room: &str, stored: Vec<Stored>) -> Vec<Seen> {
    let (mut seen, mut writers) = (Vec::with_capacity(stored.len()), false);
    for one in stored {
        let mode = match one.node.kind {
            Kind::Room | Kind::Permit => continue,
            Kind::Read => Mode::Read,
            Kind::Write => Mode::Write,
            Kind::Mutex | Kind::Foreign => Mode::Mutex,
        };
        let holds = match mode {
            Mode::Read => !writers,
            _ => seen.is_empty(),
        };
        writers |= mode != Mode::Read;
        seen.push(Seen::new(room, one, mode, holds));
    }
    seen
}

/// The line of a semaphore: the claims with permits, then those that wait.
fn semaphore(
    (line, asking): (&str, Vec<Stored>),
    (permits, held): (&str, Vec<Stored>),
) -> Vec<Seen> {
    let of = u32::try_from(held.len()).unwrap_or(u32::MAX).max(1);
    let mode = |stored: &Stored| match Note::read(&stored.data) {
        Some(note) => Mode::Permits {
            count: note.weight,
            of: note.capacity,
        },
        None => Mode::Permits { count: 1, of },
    };
    let mut seen: Vec<Seen> = Vec::new();
    for permit in held {
        let claim = permit.node.claim;
        let waits = asking.iter().any(|asks| asks.node.claim == claim);
        let same =
            |seen: &&mut Seen| claim.is_some() && seen.note.is_some() && seen.claim() == claim;
        match seen.last_mut().filter(same) {
            Some(last) => last.nodes.push(permit),
            None => {
                let mode = mode(&permit);
                seen.push(Seen::new(permits, permit, mode, !waits));
            }
        }
    }
    for asks in asking {
        let claim = asks.node.claim;
        if claim.is_none() || seen.iter().all(|seen| seen.claim() != claim) {
            let mode = mode(&asks);
            seen.push(Seen::new(line, asks, mode, false));
        }
    }
    seen
}

impl Seen {
    fn claim(&self) -> Option<crate::claim::ClaimId> {
        self.nodes[0].node.claim
    }
}
