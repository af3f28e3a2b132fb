//! What killed processes left behind. Every session that opens clears away a little of it.

use std::fs::DirEntry;
use std::path::Path;

use super::alive;
use super::lines::{Lines, Place};
use super::look::look;
use super::world::World;
use crate::claim::SessionId;
use crate::line::Line;
use crate::name::Name;

/// How many files of each kind are looked at: opening a session must stay cheap.
const AT_MOST: usize = 16;

pub(super) fn clear(world: &World) {
    for entry in some(&world.dir.sessions) {
        let name = entry.file_name();
        let digits = name.to_str().map(|name| name.trim_end_matches(".sock"));
        let id = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        if let Some(id) = id.map(SessionId::from_u128)
            && alive::is_dead(&world.dir, id)
        {
            // Its socket may be all that is left of it.
            let _ = rustix::fs::unlink(world.dir.socket(id));
        }
    }
    for entry in some(&world.dir.lines) {
        if let Ok(Some((name, line))) = look(&entry.path(), &world.dir.boot)
            && !in_use(world, &line)
        {
            remove(world, &name);
        }
    }
}

/// A few entries of a directory, other ones each time.
fn some(dir: &Path) -> Vec<DirEntry> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    if entries.len() > AT_MOST {
        let first = rand::random_range(0..entries.len());
        entries.rotate_left(first);
        entries.truncate(AT_MOST);
    }
    entries
}

fn in_use(world: &World, line: &Line) -> bool {
    let now = world.clock.now();
    let ended = |session| alive::is_dead(&world.dir, session);
    let mut places = line.places();
    places.any(|place| place.deadline > now && !ended(place.session))
}

/// Removes a line's file if it is still not in use. Should that fail, somebody else will.
fn remove(world: &World, name: &Name) {
    let place = Place::existing(&world.dir, name);
    let _ = Lines::default().with(&mut None, &place, |mut locked| {
        let line = locked.line()?;
        match !in_use(world, line) && line.last_fence() < world.clock.wall() {
            true => locked.remove(),
            false => Ok(false),
        }
    });
}
