//! `inspect` of a directory. Changes nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};

use super::dir::{io, open_file};
use super::error::{Fault, Trouble};
use super::presence;
use super::record::{self, BootId};
use super::store::{read, try_flock};
use super::transaction::World;
use crate::claim::{Mode, SessionId};
use crate::engine::{ClaimView, Identity, LineView};
use crate::line::{Line, Place};
use crate::name::Name;

/// The lines in use, or the line of one name. Claims that have ended are left out, though their record may still be
/// there.
pub(super) fn views(world: &World, only: Option<&Name>) -> Result<Vec<LineView>, Trouble> {
    let mut known = HashMap::new();
    let mut views = Vec::new();
    for path in paths(world, only)? {
        match look(&path, &world.dir.boot) {
            Ok(Some((name, line))) => views.extend(view(world, name, &line, &mut known)),
            Ok(None) => {}
            Err(trouble) if only.is_some() => return Err(trouble),
            // One damaged file does not hide the others.
            Err(trouble) => tracing::warn!(?trouble, "skipped"),
        }
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(views)
}

fn paths(world: &World, only: Option<&Name>) -> Result<Vec<PathBuf>, Trouble> {
    if let Some(name) = only {
        return Ok(vec![world.dir.line(name)]);
    }
    let lines: &Path = &world.dir.lines;
    match std::fs::read_dir(lines) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io("list", lines, &error)),
    }
}

/// Which process a session is; none for a dead one.
type Known = HashMap<SessionId, Option<Option<Identity>>>;

fn view(world: &World, name: Name, line: &Line, known: &mut Known) -> Option<LineView> {
    let (clock, dir) = (&world.clock, &world.dir);
    let now = clock.now();
    let mut claim = |place: &Place| {
        let who = known.entry(place.session).or_insert_with(|| {
            let alive = !presence::is_dead(dir, place.session);
            alive.then(|| presence::identity(dir, place.session))
        });
        let who = who.clone().filter(|_| place.deadline > now)?;
        let (since, until) = (
            clock.wall_time_of(place.since),
            clock.wall_time_of(place.deadline),
        );
        let mode = Mode::of(place.weight, line.capacity());
        let lease = Duration::from_micros(place.lease);
        let view = ClaimView::new(place.fence, mode, who, since, until);
        Some(view.lease(lease).held_by_fence())
    };
    let claims: Vec<_> = line.places().filter_map(&mut claim).collect();
    (!claims.is_empty()).then(|| LineView::new(name, claims))
}

/// The name and the line in a file. None if it is empty or was removed meanwhile.
pub(super) fn look(path: &Path, boot: &BootId) -> Result<Option<(Name, Line)>, Trouble> {
    let file = match open_file(path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(trouble) if trouble.is_missing() => return Ok(None),
        Err(trouble) => return Err(trouble),
    };
    // Should it stay busy, the read goes without: records have checksums, and this only looks.
    let _ = try_flock(&file, FlockOperation::NonBlockingLockShared);
    let mut bytes = Vec::new();
    read(&file, path, &mut bytes)?;
    let record = record::current(&bytes).map_err(|fault| fault.of(path.to_owned()))?;
    let Some(record) = record else {
        return Ok(None);
    };
    let name = Name::new(record.name).map_err(|_| Fault::Torn.of(path.to_owned()))?;
    Ok(Some((name, record.line(boot))))
}
