//! A line's file while it is locked: its line is read, changed, written; the file is removed.

use rustix::fs::FlockOperation;

use super::super::error::{Fault, Trouble};
use super::super::page::PAGE;
use super::super::record::{self, Spot};
use super::Store;
use crate::line::Line;

/// Files above this are cut once their state is small again.
const LARGE: usize = 16 * PAGE;

/// A line's file while nobody else may touch it.
#[derive(Debug)]
pub(in super::super) struct Locked<'a> {
    store: &'a mut Store,
    /// The record that holds the line as it was found.
    from: Option<Spot>,
}

impl<'a> Locked<'a> {
    /// A store whose file was just locked.
    pub(super) fn new(store: &'a mut Store) -> Self {
        Self { store, from: None }
    }

    pub(super) fn store(&mut self) -> &mut Store {
        self.store
    }

    /// The line as it is, to be changed and then [written](Self::write).
    pub(in super::super) fn line(&mut self) -> Result<&mut Line, Trouble> {
        let store = &mut *self.store;
        // Until the change is written the record no longer says what the line is.
        self.from = store.spot.take();
        // Every record has a larger number than the one before: with the same one nothing was written since.
        if self.from.is_some_and(|spot| spot.is_newest(store.bytes())) {
            return Ok(&mut store.line);
        }
        let found = record::current(store.bytes()).map_err(|fault| fault.of(store.path.clone()))?;
        let (from, line) = match found {
            // The name is new, or comes back.
            None => (None, Line::new(store.floor.get()?)),
            Some(record) if record.name == store.name.as_str() => {
                (Some(record.spot), record.line(&store.boot))
            }
            Some(record) => {
                return Err(Fault::OtherName(record.name.to_owned()).of(store.path.clone()));
            }
        };
        (self.from, store.line) = (from, line);
        Ok(&mut store.line)
    }

    /// The line as it was written.
    pub(in super::super) fn written(&self) -> &Line {
        &self.store.line
    }

    /// Makes the line as it is now the file's state; the one before it stands until the last byte is written.
    pub(in super::super) fn write(&mut self) -> Result<(), Trouble> {
        let (store, from) = (&mut *self.store, self.from);
        let sequence = from.map_or(1, |spot| spot.sequence.saturating_add(1));
        let (boot, name) = (&store.boot, &store.name);
        record::encode(&mut store.next, sequence, boot, name, &store.line);
        if let Some(spot) = from
            && record::same(&store.next, &store.bytes()[spot.at..spot.at + spot.len])
        {
            store.spot = from;
            return Ok(());
        }
        let len = store.next.len();
        let at = from.map_or(0, |spot| spot.next(len));
        if let Err(errno) = store.put(at) {
            // A half of a first record would look like damage.
            if from.is_none() {
                let _ = rustix::fs::ftruncate(&store.file, 0);
            }
            return Err(Trouble::io("write", &store.path, errno));
        }
        store.spot = Some(Spot { at, len, sequence });
        if at == 0 && !store.mapped && store.bytes.len() > LARGE && len <= PAGE {
            let _ = rustix::fs::ftruncate(&store.file, PAGE as u64);
        }
        Ok(())
    }

    /// Removes the file of an idle line, unless that has to wait: says whether. Whoever has it open finds it empty
    /// once it gets the lock, and looks.
    pub(in super::super) fn remove(self) -> Result<bool, Trouble> {
        let store = &*self.store;
        if !store.floor.raise(store.line.last_fence())? {
            return Ok(false);
        }
        let removed = rustix::fs::unlink(&store.path);
        let removed = removed.and_then(|()| rustix::fs::ftruncate(&store.file, 0));
        removed.map_err(|errno| Trouble::io("remove", &store.path, errno))?;
        Ok(true)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.store.file, FlockOperation::Unlock);
    }
}
