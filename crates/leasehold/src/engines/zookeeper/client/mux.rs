//! Requests of many callers over one connection at a time: answers come in the order of the requests, events between them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::codec::{Decoder, Encoder, Frame, Op};
use super::error::{Answer, Trouble, lost, refusal, senseless};
use super::watches::{Key, Of, Watches};
use crate::sync::Shared;

/// Reserved xids: event, ping, auth, setWatches.
const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;
const WATCHES: i32 = -8;

/// Resolves once: when what it watches changes, or the session ends. Dropped, the server is told to forget it.
pub(in crate::engines::zookeeper) type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The phase of the session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum Connectivity {
    Up,
    Down,
    Over,
}

/// Shared by the callers and the task that keeps the connection.
pub(super) struct Mux {
    state: Shared<State>,
    /// There are bytes to write.
    pub(super) wake: Notify,
    pub(super) connectivity: watch::Sender<Connectivity>,
    /// Cancelled once the session has ended, before a caller is told so.
    pub(super) ended: CancellationToken,
}

#[derive(Default)]
struct State {
    up: bool,
    /// Requests to write to the connection.
    out: Vec<u8>,
    /// Sent and not answered, in order.
    asked: VecDeque<Asked>,
    /// To be sent once there is a connection.
    waiting: VecDeque<(Encoder, Asked)>,
    over: Option<Trouble>,
    xid: i32,
    /// The zxid of the last answer.
    zxid: i64,
    watches: Watches,
    received: bool,
}

struct Asked {
    xid: i32,
    watch: Option<Key>,
    tell: Option<oneshot::Sender<Answer<Answered>>>,
}

/// An answer, and the watch that was asked for with it.
pub(super) struct Answered {
    frame: Vec<u8>,
    pub(super) watch: Option<Watch>,
}

/// xid, zxid and error code.
const HEADER: usize = 16;

impl Answered {
    pub(super) fn body(&self) -> Decoder<'_> {
        Decoder(self.frame.get(HEADER..).unwrap_or(&[]))
    }
}

impl Mux {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Shared::default(),
            wake: Notify::new(),
            connectivity: watch::Sender::new(Connectivity::Down),
            ended: CancellationToken::new(),
        })
    }

    /// Sends with this call, in the order of the calls. Without a connection the request waits for one; if the future
    /// is dropped by then, the request is never sent.
    pub(super) fn ask(
        &self,
        request: Encoder,
        watch: Option<Key>,
    ) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        self.take(request, watch, Some(tell));
        async move { told.await.unwrap_or_else(|_| Err(lost())) }
    }

    fn take(
        &self,
        request: Encoder,
        watch: Option<Key>,
        tell: Option<oneshot::Sender<Answer<Answered>>>,
    ) {
        let xid = 0;
        let asked = Asked { xid, watch, tell };
        let mut state = self.state.lock();
        if let Some(why) = state.over.clone() {
            drop(state);
            return asked.fail(why);
        }
        match state.up {
            true => state.send(request, asked),
            false => state.waiting.push_back((request, asked)),
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Takes a watch back, unless another receiver has it or a request that sets it again is under way: the server
    /// would take both back.
    fn unwatch(&self, key: &Key, number: u64) {
        let mut state = self.state.lock();
        let last = state.watches.remove(key, number);
        let sets_it = |asked: &Asked| asked.watch.as_ref() == Some(key);
        let wanted = state.asked.iter().any(sets_it)
            || state.waiting.iter().any(|(_, asked)| sets_it(asked));
        if !last || wanted || !state.up {
            return;
        }
        drop(state);
        let kind = match key.0 {
            Of::Children => 1,
            Of::Data => 2,
        };
        let request = Encoder::request(Op::RemoveWatches).text(&key.1).int(kind);
        self.take(request, None, None);
    }

    /// The bytes to write.
    pub(super) fn take_out(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().out)
    }

    /// Sends a frame whose answer no caller waits for.
    pub(super) fn say(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        state.out.extend_from_slice(frame);
        drop(state);
        self.wake.notify_one();
    }

    /// Whether a frame has arrived since the last call.
    pub(super) fn has_received(&self) -> bool {
        std::mem::take(&mut self.state.lock().received)
    }

    /// The first requests to another server: the login and the watches. A ping ends it, so that its answer is the last.
    pub(super) fn greeting(&self, login: Vec<u8>) -> Vec<u8> {
        let state = self.state.lock();
        let watches = state.watches.set_again(state.zxid, WATCHES);
        drop(state);
        [login, watches, ping()].concat()
    }

    pub(super) fn up(&self) {
        let mut state = self.state.lock();
        state.up = true;
        for (request, asked) in std::mem::take(&mut state.waiting) {
            if asked.tell.as_ref().is_some_and(|tell| !tell.is_closed()) {
                state.send(request, asked);
            }
        }
        drop(state);
        let _ = self.connectivity.send_replace(Connectivity::Up);
        self.wake.notify_one();
    }

    /// The connection has ended: whether the requests without an answer were done is not known.
    pub(super) fn down(&self, why: &str) {
        let mut state = self.state.lock();
        state.up = false;
        state.out.clear();
        let asked = std::mem::take(&mut state.asked);
        drop(state);
        let _ = self.connectivity.send_replace(Connectivity::Down);
        for asked in asked {
            asked.fail(Trouble::Unknown(why.to_owned()));
        }
    }

    /// The session has ended. The first reason counts.
    pub(super) fn over(&self, why: &Trouble) {
        let mut state = self.state.lock();
        if state.over.is_some() {
            return;
        }
        state.up = false;
        state.over = Some(why.clone());
        let asked = std::mem::take(&mut state.asked);
        let waiting = std::mem::take(&mut state.waiting);
        let watches = std::mem::take(&mut state.watches);
        drop(state);
        self.ended.cancel();
        let _ = self.connectivity.send_replace(Connectivity::Over);
        let waiting = waiting.into_iter().map(|(_, asked)| asked);
        for asked in asked.into_iter().chain(waiting) {
            asked.fail(why.clone());
        }
        // Dropped, every watch fires.
        drop(watches);
    }

    pub(super) fn zxid(&self) -> i64 {
        self.state.lock().zxid
    }

    /// Takes in one frame; answers its xid. An error ends the connection.
    pub(super) fn hear(self: &Arc<Self>, frame: Frame) -> Answer<i32> {
        let mut header = Decoder(&frame.bytes);
        let (xid, zxid, code) = (header.int()?, header.long()?, header.int()?);
        let mut state = self.state.lock();
        state.received = true;
        match xid {
            EVENT => {
                // Its zxid is not the last that was seen: another event of the same change may be still to come, and
                // `setWatches` after a reconnect asks for changes after the last that was seen.
                let fired = state.watches.fired_by(&mut header)?;
                drop(state);
                for fire in fired {
                    let _ = fire.send(());
                }
            }
            AUTH if code != 0 => return Err(refusal(-115)),
            PING | AUTH | WATCHES => {}
            xid => {
                state.zxid = state.zxid.max(zxid);
                let asked = state.asked.pop_front();
                let asked = asked.filter(|asked| asked.xid == xid);
                let asked = asked.ok_or_else(senseless)?;
                self.answer(state, asked, code, frame);
            }
        }
        match code {
            // Session moved: another connection has replaced this one.
            -118 => Err(lost()),
            _ => Ok(xid),
        }
    }

    fn answer(
        self: &Arc<Self>,
        mut state: std::sync::MutexGuard<'_, State>,
        asked: Asked,
        code: i32,
        frame: Frame,
    ) {
        if let Some(why) = refused(code, &frame) {
            drop(state);
            return asked.fail(why);
        }
        // Added before the next frame is read: it may be the event.
        let watch = asked.watch.map(|key| {
            let (number, fired) = state.watches.add(key.clone());
            let mux = self.clone();
            (Watching { mux, key, number }, fired)
        });
        drop(state);
        let watch = watch.map(|(watching, fired)| -> Watch { Box::pin(watching.until(fired)) });
        if let Some(tell) = asked.tell {
            let frame = frame.bytes;
            let _ = tell.send(Ok(Answered { frame, watch }));
        }
    }
}

fn refused(code: i32, frame: &Frame) -> Option<Trouble> {
    match (code, frame.cut) {
        (0, None) => None,
        (0, Some(length)) => Some(Trouble::Refused(format!(
            "the answer has {length} bytes, more than is taken: set jute.maxbuffer in the URL to as much as the server has"
        ))),
        (code, _) => Some(refusal(code)),
    }
}

impl State {
    fn send(&mut self, request: Encoder, asked: Asked) {
        // Negative xids are reserved.
        self.xid = self.xid.checked_add(1).unwrap_or(1);
        self.out.extend(request.numbered(self.xid));
        let xid = self.xid;
        self.asked.push_back(Asked { xid, ..asked });
    }
}

impl Asked {
    fn fail(self, why: Trouble) {
        if let Some(tell) = self.tell {
            let _ = tell.send(Err(why));
        }
    }
}

pub(super) fn ping() -> Vec<u8> {
    Encoder::request(Op::Ping).numbered(PING)
}

/// A watch at the server, taken back when it is dropped.
struct Watching {
    mux: Arc<Mux>,
    key: Key,
    number: u64,
}

impl Watching {
    async fn until(self, fired: oneshot::Receiver<()>) {
        let _ = fired.await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.mux.unwatch(&self.key, self.number);
    }
}

#[cfg(test)]
mod tests;
