//! The watches of one session.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::codec::{Decoder, Encoder, Op};
use super::error::Answer;

/// Kind of a watch: data or children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// Its data, and its deletion.
    Data,
    /// Its children, and its deletion.
    Children,
}

/// Key of a watch: data or children, and the path.
pub(super) type Key = (Of, String);

/// The watches that the server was asked for, each with the receivers that wait for it.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: HashMap<Key, Vec<(u64, oneshot::Sender<()>)>>,
    made: u64,
}

/// Largest frame of `setWatches`: a server takes a megabyte unless it is configured otherwise.
const FRAME: usize = 100_000;

impl Watches {
    /// Adds a receiver; its number is for [`remove`](Self::remove).
    pub(super) fn add(&mut self, key: Key) -> (u64, oneshot::Receiver<()>) {
        let (fire, fired) = oneshot::channel();
        self.made += 1;
        self.all.entry(key).or_default().push((self.made, fire));
        (self.made, fired)
    }

    /// Removes a receiver; true if it was the last of its key.
    pub(super) fn remove(&mut self, key: &Key, number: u64) -> bool {
        let Some(those) = self.all.get_mut(key) else {
            return false;
        };
        those.retain(|(other, _)| *other != number);
        those.is_empty() && self.all.remove(key).is_some()
    }

    /// Takes out the receivers that an event of the server concerns.
    pub(super) fn fired_by(&mut self, event: &mut Decoder<'_>) -> Answer<Vec<oneshot::Sender<()>>> {
        let (kind, _state, path) = (event.int()?, event.int()?, event.text()?);
        let those: &[Of] = match kind {
            2 => &[Of::Data, Of::Children],
            1 | 3 => &[Of::Data],
            4 => &[Of::Children],
            _ => &[],
        };
        let fired = those
            .iter()
            .filter_map(|of| self.all.remove(&(*of, path.to_owned())));
        Ok(fired.flatten().map(|(_, fire)| fire).collect())
    }

    /// The requests that set all watches at another server. It sends the events of changes after `since` at once.
    pub(super) fn set_again(&self, since: i64, xid: i32) -> Vec<u8> {
        let mut frames = Vec::new();
        let (mut these, mut length) = ([Vec::new(), Vec::new()], 0);
        let frame = |[data, children]: [Vec<String>; 2]| {
            let request = Encoder::request(Op::SetWatches).long(since);
            let request = request.texts(&data).texts(&[]).texts(&children);
            request.numbered(xid)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fire(watches: &mut Watches, kind: i32, path: &str) {
        let event = Encoder::frame().int(kind).int(3).text(path).done();
        let fired = watches.fired_by(&mut Decoder(&event[4..])).unwrap();
        for fire in fired {
            let _ = fire.send(());
        }
    }

    #[test]
    fn an_event_fires_what_it_concerns_once() {
        let mut watches = Watches::default();
        let mut add = |of, path: &str| watches.add((of, path.to_owned())).1;
        let (mut data, mut again) = (add(Of::Data, "/a"), add(Of::Data, "/a"));
        let (mut children, mut other) = (add(Of::Children, "/a"), add(Of::Children, "/b"));
        fire(&mut watches, 4, "/b");
        assert_eq!(other.try_recv(), Ok(()));
        fire(&mut watches, 3, "/a");
        assert_eq!((data.try_recv(), again.try_recv()), (Ok(()), Ok(())));
        assert!(children.try_recv().is_err());
        fire(&mut watches, 2, "/a");
        assert_eq!(children.try_recv(), Ok(()));
        assert!(watches.all.is_empty());
    }

    #[test]
    fn the_last_receiver_of_a_key_is_noticed() {
        let (mut watches, key) = (Watches::default(), (Of::Data, "/a".to_owned()));
        let (first, _one) = watches.add(key.clone());
        let (second, _two) = watches.add(key.clone());
        assert!(!watches.remove(&key, first));
        assert!(watches.remove(&key, second));
        assert!(!watches.remove(&key, second));
    }

    #[test]
    fn many_watches_are_set_again_in_several_frames() {
        let mut watches = Watches::default();
        assert!(watches.set_again(1, -8).is_empty());
        let _kept: Vec<_> = (0..30_000)
            .map(|at| watches.add((Of::Data, format!("/{at}"))))
            .collect();
        let (frames, mut at, mut count) = (watches.set_again(1, -8), 0, 0);
        while at < frames.len() {
            let mut read = Decoder(&frames[at..]);
            let length = read.int().unwrap() as usize;
            assert!(length < 2 * FRAME);
            let _head = (read.long().unwrap(), read.long().unwrap());
            count += read.texts().unwrap().len();
            at += 4 + length;
        }
        assert_eq!(count, 30_000);
    }
}
