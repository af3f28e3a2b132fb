//! What `inspect` shows of a directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::alive;
use super::dir::io;
use super::error::Trouble;
use super::look::look;
use super::world::World;
use crate::claim::{Mode, SessionId};
use crate::engine::{ClaimView, Identity, LineView};
use crate::line::{Line, Place};
use crate::name::Name;

/// The lines in use, or the line of one name. Claims that have ended are left out, though their record may still be
/// there: looking changes nothing.
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

/// Who a session is; none for a dead one.
type Known = HashMap<SessionId, Option<Option<Identity>>>;

fn view(world: &World, name: Name, line: &Line, known: &mut Known) -> Option<LineView> {
    let (clock, dir) = (&world.clock, &world.dir);
    let now = clock.now();
    let mut claim = |place: &Place| {
        let who = known.entry(place.session).or_insert_with(|| {
            let alive = !alive::is_dead(dir, place.session);
            alive.then(|| alive::identity(dir, place.session))
        });
        let who = who.clone().filter(|_| place.deadline > now)?;
        let (since, until) = (
            clock.wall_time_of(place.since),
            clock.wall_time_of(place.deadline),
        );
        let mode = Mode::of(place.weight, line.capacity());
        let lease = Duration::from_micros(place.lease);
        Some(ClaimView::new(place.fence, mode, who, since, until).lease(lease))
    };
    let claims: Vec<_> = line.places().filter_map(&mut claim).collect();
    (!claims.is_empty()).then(|| LineView::new(name, claims))
}
