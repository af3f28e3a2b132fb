//! Who waits for which node to change.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::jute::{In, Op, Out};
use super::terms::{Seen, Trouble};

/// What of a node is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// Its data, and its deletion.
    Data,
    /// Its children, and its deletion.
    Children,
}

/// What is watched, and which watch on it it is.
pub(super) type Key = (Of, String);

/// The watches of one session.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: HashMap<Key, Vec<(u64, oneshot::Sender<Seen>)>>,
    made: u64,
}

/// Largest frame of watches that are set again: servers take a megabyte.
const FRAME: usize = 100_000;

impl Watches {
    /// One more; it has this number.
    pub(super) fn add(&mut self, key: Key) -> (u64, oneshot::Receiver<Seen>) {
        let (fire, fired) = oneshot::channel();
        self.made += 1;
        self.all.entry(key).or_default().push((self.made, fire));
        (self.made, fired)
    }

    /// One fewer; says whether nobody watches that any more.
    pub(super) fn remove(&mut self, key: &Key, number: u64) -> bool {
        let Some(those) = self.all.get_mut(key) else {
            return false;
        };
        those.retain(|(other, _)| *other != number);
        those.is_empty() && self.all.remove(key).is_some()
    }

    /// What a server's event means: who is to be told, and what.
    pub(super) fn fire(&mut self, event: &mut In<'_>) -> Result<Vec<Fire>, Trouble> {
        let (kind, _state, path) = (event.int()?, event.int()?, event.text()?);
        let (those, seen): (&[Of], _) = match kind {
            2 => (&[Of::Data, Of::Children], Seen::Deleted),
            1 | 3 => (&[Of::Data], Seen::Changed),
            4 => (&[Of::Children], Seen::Changed),
            _ => (&[], Seen::Changed),
        };
        let fires = those
            .iter()
            .filter_map(|of| self.all.remove(&(*of, path.clone())));
        Ok(fires.flatten().map(|(_, fire)| Fire(fire, seen)).collect())
    }

    /// Another server has to know of them: what changed since this change, it tells at once.
    pub(super) fn set_again(&self, since: i64, number: i32) -> Vec<u8> {
        let mut frames = Vec::new();
        let (mut these, mut length) = ([Vec::new(), Vec::new()], 0);
        let frame = |[data, children]: [Vec<String>; 2]| {
            let request = Out::request(Op::SetWatches).long(since);
            let request = request.texts(&data).texts(&[]).texts(&children);
            request.numbered(number)
        };
        for (of, path) in self.all.keys() {
            length += path.len() + 4;
            these[usize::from(*of == Of::Children)].push(path.clone());
            if length > FRAME {
                frames.extend(frame(std::mem::take(&mut these)));
                length = 0;
            }
        }
        if length > 0 {
            frames.extend(frame(these));
        }
        frames
    }
}

/// Somebody to be told.
pub(super) struct Fire(oneshot::Sender<Seen>, Seen);

impl Fire {
    /// Whoever has gone meanwhile does not need it.
    pub(super) fn tell(self) {
        let _ = self.0.send(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: i32, path: &str) -> Vec<u8> {
        Out::frame().int(kind).int(3).text(path).done()
    }

    fn fire(watches: &mut Watches, kind: i32, path: &str) {
        let event = event(kind, path);
        let fires = watches.fire(&mut In(&event[4..])).unwrap();
        fires.into_iter().for_each(Fire::tell);
    }

    #[test]
    fn an_event_fires_what_it_is_about_once() {
        let mut watches = Watches::default();
        let mut add = |of, path: &str| watches.add((of, path.to_owned())).1;
        let (mut data, mut again) = (add(Of::Data, "/a"), add(Of::Data, "/a"));
        let (mut children, mut other) = (add(Of::Children, "/a"), add(Of::Children, "/b"));
        fire(&mut watches, 4, "/b");
        assert_eq!(other.try_recv(), Ok(Seen::Changed));
        fire(&mut watches, 3, "/a");
        assert_eq!(data.try_recv(), Ok(Seen::Changed));
        assert_eq!(again.try_recv(), Ok(Seen::Changed));
        assert!(children.try_recv().is_err());
        fire(&mut watches, 2, "/a");
        assert_eq!(children.try_recv(), Ok(Seen::Deleted));
        assert!(watches.all.is_empty());
    }

    #[test]
    fn the_last_to_go_is_noticed() {
        let (mut watches, key) = (Watches::default(), (Of::Data, "/a".to_owned()));
        let (first, _one) = watches.add(key.clone());
        let (second, _two) = watches.add(key.clone());
        assert!(!watches.remove(&key, first));
        assert!(watches.remove(&key, second));
        assert!(!watches.remove(&key, second));
    }

    #[test]
    fn many_are_set_again_in_several_frames() {
        let mut watches = Watches::default();
        assert!(watches.set_again(1, -8).is_empty());
        let _kept: Vec<_> = (0..30_000)
            .map(|at| watches.add((Of::Data, format!("/{at}"))))
            .collect();
        let (frames, mut at, mut count) = (watches.set_again(1, -8), 0, 0);
        while at < frames.len() {
            let mut read = In(&frames[at..]);
            let length = read.int().unwrap() as usize;
            assert!(length < 2 * FRAME);
            let _head = (
                read.int().unwrap(),
                read.int().unwrap(),
                read.long().unwrap(),
            );
            count += read.texts().unwrap().len();
            at += 4 + length;
        }
        assert_eq!(count, 30_000);
    }
}
