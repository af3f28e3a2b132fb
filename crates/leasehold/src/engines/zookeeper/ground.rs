//! What is known of a name's node from one claim to the next: whether the next one sees by its number that it is alone.
//!
//! Sequences count every child that was ever made below a node. Our last place had number k, nobody stood before it, it
//! is gone, and the next one has number k + 1: nobody came in between, so nobody else is there, and nothing need be
//! listed. That holds for one life of the node only: made again it counts from nought. So its data is watched. That watch
//! lasts until the node is deleted, over reconnections too, and its event arrives before the answer to whatever was done
//! after the deletion.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::wire::{Watch, With};
use crate::name::Name;
use crate::sync::Shared;

/// Of one name's node.
pub(super) struct Ground {
    /// Its path.
    pub(super) base: Arc<str>,
    /// Fires when the node is deleted.
    watch: Option<Watch>,
    /// No child with this number or a smaller one is left, but a claim's own.
    clear: Option<i64>,
}

impl Ground {
    /// A node of which nothing is known.
    pub(super) fn new(base: impl Into<Arc<str>>) -> Self {
        Self {
            base: base.into(),
            watch: None,
            clear: None,
        }
    }

    /// What the next claim has to ask besides making its node. Only a name that is used again is worth a watch.
    pub(super) fn with(&mut self) -> With {
        match (self.is_same(), self.clear) {
            (true, Some(_)) => With::Nothing,
            (false, Some(_)) => With::ListAndParent,
            (_, None) => With::List,
        }
    }

    /// The watch that was set while a claim's own node was there.
    pub(super) fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Whether the claim whose node was just made with this number is alone.
    pub(super) fn proves(&mut self, number: i64) -> bool {
        let alone = self.is_same() && self.clear == Some(number - 1);
        self.clear = alone.then_some(number);
        alone
    }

    /// Nobody else was there when the claim with this number looked.
    pub(super) fn alone(&mut self, number: i64) {
        self.clear = Some(number);
    }

    /// Somebody else was there: the next number cannot be ours.
    pub(super) fn shared(&mut self) {
        self.clear = None;
    }

    /// Whether it is known to be the node it was.
    fn is_same(&mut self) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let fired = watch.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if fired == Poll::Pending {
            return true;
        }
        (self.watch, self.clear) = (None, None);
        false
    }
}

/// How many names are remembered, and watched, per ZooKeeper session.
const MOST: usize = 64;

/// Of the names that were used last, while nobody of ours stands there; the last one at the end.
#[derive(Default)]
pub(super) struct Grounds(Shared<VecDeque<(Name, Ground)>>);

impl Grounds {
    pub(super) fn take(&self, name: &Name) -> Option<Ground> {
        let mut all = self.0.lock();
        let at = all.iter().rposition(|(of, _)| of == name)?;
        all.remove(at).map(|(_, ground)| ground)
    }

    /// Whether the next claim there need not ask for others.
    pub(super) fn know(&self, name: &Name) -> bool {
        let mut all = self.0.lock();
        let mut grounds = all.iter_mut().rev();
        let ground = grounds.find(|(of, _)| of == name);
        ground.is_some_and(|(_, ground)| ground.with() == With::Nothing)
    }

    pub(super) fn keep(&self, name: &Name, ground: Ground) {
        if ground.watch.is_none() && ground.clear.is_none() {
            return;
        }
        let mut all = self.0.lock();
        let other = all.iter().rposition(|(of, _)| of == name);
        match other {
            // Two claims stood there at a time. What one of them knew stays true.
            Some(_) if ground.watch.is_none() => return,
            Some(other) => drop(all.remove(other)),
            None if all.len() == MOST => drop(all.pop_front()),
            None => {}
        }
        all.push_back((name.clone(), ground));
    }
}

impl fmt::Debug for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grounds({})", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::wire::Seen;
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    /// A ground where a claim with this number was alone, and what fires its watch.
    fn ground(number: i64) -> (Ground, oneshot::Sender<()>) {
        let (fire, fired) = oneshot::channel::<()>();
        let mut ground = Ground::new("/");
        ground.alone(number);
        assert_eq!(ground.with(), With::ListAndParent);
        ground.watch(Box::pin(async move {
            let _ = fired.await;
            Seen::Deleted
        }));
        (ground, fire)
    }

    #[test]
    fn only_the_next_number_of_the_same_node_proves_it() {
        let (mut same, _fire) = ground(7);
        assert_eq!(same.with(), With::Nothing);
        assert!(same.proves(8) && same.proves(9));
        assert!(!same.proves(11), "somebody was number 10");
        assert_eq!(same.with(), With::List);
        assert!(!same.proves(12), "and may still be there");

        let (mut again, fire) = ground(7);
        assert_eq!(again.with(), With::Nothing);
        fire.send(()).expect("watched");
        assert!(!again.proves(8), "it is another node");
        assert_eq!(again.with(), With::List);
    }

    #[test]
    fn the_names_used_last_are_remembered() {
        let (grounds, named) = (Grounds::default(), |at: usize| name(&at.to_string()));
        let mut fires = Vec::new();
        for at in 0..=MOST {
            let (ground, fire) = ground(7);
            grounds.keep(&named(at), ground);
            fires.push(fire);
        }
        assert!(fires[0].is_closed(), "no longer watched");
        assert!(grounds.know(&named(1)) && !grounds.know(&named(0)));
        assert!(grounds.take(&named(0)).is_none());
        let with = grounds.take(&named(1)).map(|mut ground| ground.with());
        assert_eq!(with, Some(With::Nothing));
        assert!(grounds.take(&named(1)).is_none(), "taken");
    }

    #[test]
    fn of_two_claims_at_a_time_the_one_that_watched_is_kept() {
        let (grounds, name) = (Grounds::default(), name("stock"));
        let (watched, _fire) = ground(7);
        grounds.keep(&name, watched);
        let mut other = Ground::new("/");
        other.alone(8);
        grounds.keep(&name, other);
        let with = grounds.take(&name).map(|mut ground| ground.with());
        assert_eq!(with, Some(With::Nothing));
        grounds.keep(&name, Ground::new("/"));
        assert_eq!(grounds.0.lock().len(), 0, "nothing is known of it");
    }
}
