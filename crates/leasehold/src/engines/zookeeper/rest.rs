//! A lock that is released at once needs no task of its own: the calls that take and release it do the work, and in between
//! it rests. What takes longer is handed to a task, because nobody knows when a caller looks at its future again.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::session::Core;
use super::ticket::Ticket;
use crate::clock::Micros;
use crate::sync::Shared;

/// How long a claim does without a task: most are released by then. So long one that holds because of its number alone
/// hears nothing of others.
pub(super) const DEAF: Duration = Duration::from_millis(2);

/// What is to be done with a claim, by whoever asked for it or by a task.
#[derive(Default)]
pub(super) struct Step(Shared<Option<Open>>);

struct Open {
    rest: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Wakes whoever took it so far.
    caller: Waker,
}

impl Step {
    pub(super) fn begin(&self, step: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock() = Some(Open {
            rest: Box::pin(step),
            caller: Waker::noop().clone(),
        });
    }

    /// Never waits: whoever takes the step may be about to tell that it is done.
    pub(super) fn is_open(&self) -> bool {
        self.0.try_lock().is_none_or(|open| open.is_some())
    }

    /// Takes the step, unless a task does, and then waits for what came of it. Dropped, it leaves the rest to a task.
    pub(super) async fn on_the_way_to<T>(&self, answer: impl Future<Output = T>, core: &Core) -> T {
        let taking = Taking(self, core);
        poll_fn(|context| taking.0.go_on(context)).await;
        drop(taking);
        answer.await
    }

    fn go_on(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut step = self.0.lock();
        let Some(open) = &mut *step else {
            return Poll::Ready(());
        };
        if open.rest.as_mut().poll(context).is_ready() {
            *step = None;
            return Poll::Ready(());
        }
        open.caller.clone_from(context.waker());
        Poll::Pending
    }

    /// From now on a task takes it.
    pub(super) fn hand_over(&self, core: &Core) {
        if let Some(Open { rest, caller }) = self.0.lock().take() {
            drop(core.spawn(rest));
            caller.wake();
        }
    }
}

/// A caller who takes a step, and may give up.
struct Taking<'a>(&'a Step, &'a Core);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.hand_over(self.1);
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step(open: {})", self.is_open())
    }
}

/// The claims without a task, and until when at most; the first ones first.
#[derive(Debug, Default)]
pub(super) struct Unattended {
    all: VecDeque<(Micros, Arc<Ticket>)>,
    watch: Option<AbortHandle>,
}

impl Unattended {
    pub(super) fn add(&mut self, ticket: Arc<Ticket>, until: Micros) {
        self.all.push_back((until, ticket));
    }

    /// Whether somebody watches over them. Who did may be gone with its runtime.
    pub(super) fn is_watched(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| !watch.is_finished())
    }

    pub(super) fn watched_by(&mut self, watch: AbortHandle) {
        self.watch = Some(watch);
    }

    /// Forgets those who have a task or are gone, and takes those whose time is over; says when to look again.
    pub(super) fn take(&mut self, now: Micros) -> (Vec<Arc<Ticket>>, Option<Micros>) {
        let mut due = Vec::new();
        while let Some((until, ticket)) = self.all.front() {
            let unattended = ticket.is_unattended();
            if unattended && *until > now {
                return (due, Some(*until));
            }
            let first = self.all.pop_front().filter(|_| unattended);
            due.extend(first.map(|(_, ticket)| ticket));
        }
        // Whoever comes next needs another watch.
        self.watch = None;
        (due, None)
    }
}

/// Gives a task to those who need one, until nobody is left.
pub(super) async fn watch_over(core: Arc<Core>) {
    loop {
        let (due, next) = core.take_due();
        due.iter().for_each(Ticket::wake);
        match next {
            Some(when) => core.clock().sleep_until(when).await,
            None => return,
        }
    }
}
