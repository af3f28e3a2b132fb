//! A lock that is released at once needs no task of its own: the calls that take and release it do the work, and in between
//! it rests. Who rests longer is handed to a task.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::session::Core;
use super::ticket::Ticket;
use crate::clock::Micros;

/// The claims that rest, and until when at most; the first ones first.
#[derive(Debug, Default)]
pub(super) struct Resting(VecDeque<(Micros, Arc<Ticket>)>);

impl Resting {
    /// Says whether nobody was there to be woken before.
    pub(super) fn add(&mut self, ticket: Arc<Ticket>, until: Micros) -> bool {
        self.0.push_back((until, ticket));
        self.0.len() == 1
    }

    /// Forgets those who no longer rest, and takes those whose time is over; says when to look again.
    pub(super) fn take(&mut self, now: Micros) -> (Vec<Arc<Ticket>>, Option<Micros>) {
        let mut due = Vec::new();
        while let Some((until, ticket)) = self.0.front() {
            let rests = ticket.is_resting();
            if rests && *until > now {
                return (due, Some(*until));
            }
            let first = self.0.pop_front();
            due.extend(first.map(|(_, ticket)| ticket).filter(|_| rests));
        }
        (due, None)
    }
}

/// Wakes those who have rested long enough, until nobody rests.
pub(super) async fn wake_in_time(core: Arc<Core>) {
    loop {
        let (due, next) = core.take_rested();
        due.iter().for_each(Ticket::wake);
        match next {
            Some(when) => core.clock().sleep_until(when).await,
            None => return,
        }
    }
}

/// A step that goes on by itself if whoever takes it gives up.
pub(super) struct Errand<'a, T: Send + 'static> {
    pub(super) runtime: &'a Handle,
    /// None once it is done.
    pub(super) rest: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Future for Errand<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(rest) = &mut self.rest else {
            return Poll::Pending;
        };
        let done = rest.as_mut().poll(context);
        if done.is_ready() {
            self.rest = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Errand<'_, T> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            drop(self.runtime.spawn(async { drop(rest.await) }));
        }
    }
}
