//! The signals that pass through us to the child.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::sys;

/// Passed on to the child's group.
const FORWARDED: &[Signal] = &[
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];

/// End the wait for the lock.
const STOPPING: &[Signal] = &[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Every signal we pass on, heard from the moment this exists.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Those that are ignored stay ignored, here and in the child: that is what `nohup` asks for.
    pub(super) fn listen() -> io::Result<Self> {
        let heard = FORWARDED.iter().filter(|signal| !sys::is_ignored(**signal));
        let heard = heard.map(|kind| Ok((*kind, signal(SignalKind::from_raw(kind.as_raw()))?)));
        Ok(Self(heard.collect::<io::Result<_>>()?))
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let mut polled = self
                .0
                .iter_mut()
                .map(|(kind, stream)| (*kind, stream.poll_recv(cx)));
            let arrived = polled.find(|(_, polled)| polled.is_ready());
            arrived.map_or(Poll::Pending, |(kind, _)| Poll::Ready(kind))
        })
        .await
    }

    /// The next one that asks us to end.
    pub(super) async fn stop(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if STOPPING.contains(&signal) {
                return signal;
            }
        }
    }
}
