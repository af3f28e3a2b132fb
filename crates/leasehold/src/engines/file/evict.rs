//! Eviction, with a trace: the evictor, the holder, the time and the reason.

use std::io::Write;

use rustix::fs::OFlags;

use super::dir::{io, open_file};
use super::error::Trouble;
use super::store::{self, Lock};
use super::transaction::{Outcome, Patience, World};
use crate::engine::Ended;
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::identity::Identity;
use crate::line::{Change, What};
use crate::name::Name;

/// Past this the log is set aside as `evicted.log.1`, in place of the one set aside before.
const LARGE: u64 = 256 * 1024;

/// Longer reasons are cut: they are for people.
const WHY: usize = 1024;

impl World {
    /// Takes a lock away from its holders, or from one; says from how many.
    pub(super) async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let at_evict = |trouble: Trouble| trouble.at(Step::Evict).of(name);
        let mut patience = Patience::default();
        let evicted = loop {
            match self.try_evict(name, fence, by, why).map_err(at_evict)? {
                Outcome::Done(fences) => break fences,
                Outcome::Absent => return Ok(0),
                Outcome::Busy => patience.pause(self, Step::Evict, name).await?,
            }
        };
        if !evicted.is_empty() {
            tracing::warn!(%name, %by, why, "evicted");
            self.leave_trace(name, &evicted, by, why)
                .map_err(|trouble| at_evict(trouble).perhaps())?;
        }
        Ok(u32::try_from(evicted.len()).unwrap_or(u32::MAX))
    }

    /// One transaction, by no session: the fences of the holders that lost the lock.
    fn try_evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> std::result::Result<Outcome<Vec<u64>>, Trouble> {
        let mut file = None;
        let mut locked = match store::lock(&mut file, &self.dir, name, false, || Ok(()))? {
            Lock::Got(locked) => locked,
            Lock::Busy => return Ok(Outcome::Busy),
            Lock::Absent => return Ok(Outcome::Absent),
        };
        let (at, line) = (self.moment(), &mut locked.line);
        let mut changes = line.sweep(at);
        let held: Vec<_> = line.holders().cloned().collect();
        changes.extend(line.evict(fence, at));
        self.skip_dead(line, at, None, &mut changes);
        locked.write()?;
        drop(locked);
        let (by, why) = (by.to_string(), why.to_owned());
        let ended = Ended::Evicted { by, why };
        for change in &changes {
            self.tell(change, Some(&ended));
        }
        let lost = |id| {
            let lost = |change: &Change| change.claim == id && change.what == What::Evicted;
            changes.iter().any(lost)
        };
        let lost = held.iter().filter(|place| lost(place.id));
        let fences = lost.filter_map(|place| place.fence).map(Fence::get);
        Ok(Outcome::Done(fences.collect()))
    }

    /// One line per eviction. The time is in seconds, as `date --date @SECONDS` takes it.
    fn leave_trace(
        &self,
        name: &Name,
        fences: &[u64],
        by: &Identity,
        why: &str,
    ) -> std::result::Result<(), Trouble> {
        let path = self.dir.root.join("evicted.log");
        if std::fs::symlink_metadata(&path).is_ok_and(|log| log.len() > LARGE) {
            let _ = std::fs::rename(&path, self.dir.root.join("evicted.log.1"));
        }
        let seconds = self.clock.wall() / 1_000_000;
        let (command, why) = (&by.command, super::notify::cut(why, WHY));
        let line =
            format!("@{seconds} {by} ({command:?}) evicted {name:?} fences {fences:?}: {why:?}\n");
        let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let left = open_file(&path, how)?.write_all(line.as_bytes());
        left.map_err(|error| io("write", &path, &error))
    }
}
