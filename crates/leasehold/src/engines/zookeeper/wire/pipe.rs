//! Requests down one connection and answers up it, in the same order; and what the server says unasked.
//!
//! Whoever asks while nobody else does writes to the connection itself: nobody has to be woken for that. While others
//! wait for answers it leaves the writing to the one who keeps the connection.

use std::collections::VecDeque;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::channel::Writing;
use super::jute::{In, Op, Out, refusal, senseless};
use super::terms::{Answer, Line, Seen, Trouble, Watch};
use super::watches::{Fire, Key, Of, Watches};
use crate::sync::Shared;

/// The numbers of what is said without a request of somebody.
pub(super) const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;
pub(super) const WATCHES: i32 = -8;

/// What all who ask share with the one who keeps the connection.
pub(super) struct Pipe {
    state: Shared<State>,
    /// There is something to write.
    pub(super) wake: Notify,
    pub(super) line: watch::Sender<Line>,
    /// Cancelled once the session has ended, before anybody is told so.
    pub(super) ended: CancellationToken,
}

#[derive(Default)]
struct State {
    /// The connection there is.
    writing: Option<Arc<Writing>>,
    /// What was asked there, and how much of it is written.
    out: Vec<u8>,
    written: usize,
    /// Who waits for answers, in the order of the requests.
    asked: VecDeque<Asked>,
    /// Who waits for a connection.
    waiting: VecDeque<(Out, Asked)>,
    /// Why there will be no other.
    over: Option<Trouble>,
    number: i32,
    /// The last change that was heard of.
    zxid: i64,
    watches: Watches,
    /// Since somebody last looked.
    spoke: bool,
    heard: bool,
}

struct Asked {
    number: i32,
    watch: Option<Key>,
    tell: Option<oneshot::Sender<Answer<Answered>>>,
}

/// What the server answers: bytes, and the watch that was asked for.
pub(super) struct Answered {
    pub(super) body: Vec<u8>,
    pub(super) watch: Option<Watch>,
}

/// What the one who keeps the connection finds out when he looks.
pub(super) struct Look {
    pub(super) spoke: bool,
    pub(super) heard: bool,
    /// Whether somebody waits for an answer.
    pub(super) asked: bool,
}

impl Pipe {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Shared::default(),
            wake: Notify::new(),
            line: watch::Sender::new(Line::Down),
            ended: CancellationToken::new(),
        })
    }

    /// Asks at once, in the order of the calls. Without a connection it waits for one.
    pub(super) fn ask(
        self: &Arc<Self>,
        request: Out,
        watch: Option<Key>,
    ) -> impl Future<Output = Answer<Answered>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        let tell = Some(tell);
        self.take(request, watch, tell);
        async move { told.await.unwrap_or_else(|_| Err(lost())) }
    }

    fn take(
        &self,
        request: Out,
        watch: Option<Key>,
        tell: Option<oneshot::Sender<Answer<Answered>>>,
    ) {
        let mut state = self.state.lock();
        let asked = Asked {
            number: 0,
            watch,
            tell,
        };
        if let Some(why) = state.over.clone() {
            drop(state);
            asked.fail(why);
        } else if state.writing.is_none() {
            state.waiting.push_back((request, asked));
        } else {
            let alone = state.asked.is_empty();
            state.send(request, asked);
            // What it cannot write, and what went wrong, is found out by the one who keeps the connection.
            if !alone || !matches!(state.write(), Ok(true)) {
                drop(state);
                self.wake.notify_one();
            }
        }
    }

    /// Says that somebody no longer watches.
    fn unwatch(&self, key: &Key, number: u64) {
        let mut state = self.state.lock();
        let last = state.watches.remove(key, number);
        // Who is about to watch the same wants the server to go on.
        let wanted = |asked: &Asked| asked.watch.as_ref() == Some(key);
        let wanted =
            state.asked.iter().any(wanted) || state.waiting.iter().any(|(_, asked)| wanted(asked));
        if !last || wanted || state.writing.is_none() {
            return;
        }
        drop(state);
        let kind = match key.0 {
            Of::Children => 1,
            Of::Data => 2,
        };
        let request = Out::request(Op::RemoveWatches).text(&key.1).int(kind);
        self.take(request, None, None);
    }

    /// Writes what there is to write; says whether that is all.
    pub(super) fn write(&self) -> std::io::Result<bool> {
        self.state.lock().write()
    }

    /// Says something that nobody waits for.
    pub(super) fn say(&self, frame: &[u8]) -> std::io::Result<bool> {
        let mut state = self.state.lock();
        state.out.extend_from_slice(frame);
        state.spoke = true;
        state.write()
    }

    /// Looks what happened since the last time.
    pub(super) fn look(&self) -> Look {
        let mut state = self.state.lock();
        Look {
            spoke: std::mem::take(&mut state.spoke),
            heard: std::mem::take(&mut state.heard),
            asked: !state.asked.is_empty(),
        }
    }

    /// What another server must know before anything else: who we are, and what is watched. It ends with a ping.
    pub(super) fn greeting(&self, login: Vec<u8>) -> Vec<u8> {
        let state = self.state.lock();
        let watches = state.watches.set_again(state.zxid, WATCHES);
        drop(state);
        [login, watches, ping()].concat()
    }

    /// The connection is up.
    pub(super) fn up(&self, writing: Arc<Writing>) {
        let mut state = self.state.lock();
        state.writing = Some(writing);
        for (request, asked) in std::mem::take(&mut state.waiting) {
            // Whoever has gone meanwhile has not asked.
            if asked.tell.as_ref().is_some_and(|tell| !tell.is_closed()) {
                state.send(request, asked);
            }
        }
        drop(state);
        let _ = self.line.send_replace(Line::Up);
        self.wake.notify_one();
    }

    /// The connection has ended: whoever waits for an answer will not get it.
    pub(super) fn down(&self, why: &str) {
        let mut state = self.state.lock();
        state.writing = None;
        state.out.clear();
        state.written = 0;
        let asked = std::mem::take(&mut state.asked);
        drop(state);
        let _ = self.line.send_replace(Line::Down);
        for asked in asked {
            asked.fail(Trouble::Unknown(why.to_owned()));
        }
    }

    /// The session has ended. The first reason is the one.
    pub(super) fn over(&self, why: &Trouble) {
        let mut state = self.state.lock();
        if state.over.is_some() {
            return;
        }
        state.writing = None;
        state.over = Some(why.clone());
        let asked = std::mem::take(&mut state.asked);
        let waiting = std::mem::take(&mut state.waiting);
        let watches = std::mem::take(&mut state.watches);
        drop(state);
        self.ended.cancel();
        let _ = self.line.send_replace(Line::Over);
        for asked in asked
            .into_iter()
            .chain(waiting.into_iter().map(|(_, asked)| asked))
        {
            asked.fail(why.clone());
        }
        // Whoever watches sees that something has changed.
        drop(watches);
    }

    /// The last change that was heard of.
    pub(super) fn zxid(&self) -> i64 {
        self.state.lock().zxid
    }

    /// Takes in one frame; says its number. An error ends the connection.
    pub(super) fn hear(self: &Arc<Self>, frame: &[u8]) -> Answer<i32> {
        let mut frame = In(frame);
        let (number, zxid, code) = (frame.int()?, frame.long()?, frame.int()?);
        let mut state = self.state.lock();
        state.heard = true;
        state.zxid = state.zxid.max(zxid);
        match number {
            EVENT => {
                let fires = state.watches.fire(&mut frame)?;
                drop(state);
                fires.into_iter().for_each(Fire::tell);
            }
            AUTH if code != 0 => return Err(refusal(-115)),
            PING | AUTH | WATCHES => {}
            number => {
                let asked = state.asked.pop_front();
                let asked = asked.filter(|asked| asked.number == number);
                let asked = asked.ok_or_else(senseless)?;
                self.answer(state, asked, code, frame.0);
            }
        }
        match code {
            // It was heard on a connection that another has replaced.
            -118 => Err(lost()),
            _ => Ok(number),
        }
    }

    fn answer(
        self: &Arc<Self>,
        mut state: std::sync::MutexGuard<'_, State>,
        asked: Asked,
        code: i32,
        body: &[u8],
    ) {
        if code != 0 {
            drop(state);
            return asked.fail(refusal(code));
        }
        // Before the next frame is read: it may be its event.
        let watch = asked.watch.map(|key| {
            let (number, fired) = state.watches.add(key.clone());
            (
                Watching {
                    pipe: self.clone(),
                    key,
                    number,
                },
                fired,
            )
        });
        drop(state);
        let watch = watch.map(|(watching, fired)| -> Watch { Box::pin(watching.until(fired)) });
        let body = body.to_vec();
        if let Some(tell) = asked.tell {
            let _ = tell.send(Ok(Answered { body, watch }));
        }
    }
}

impl State {
    fn send(&mut self, request: Out, asked: Asked) {
        // Negative ones mean something else.
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.out.extend(request.numbered(self.number));
        self.spoke = true;
        self.asked.push_back(Asked {
            number: self.number,
            ..asked
        });
    }

    fn write(&mut self) -> std::io::Result<bool> {
        let Some(writing) = &self.writing else {
            return Ok(true);
        };
        while self.written < self.out.len() {
            match writing.try_write(&self.out[self.written..]) {
                Ok(some) => self.written += some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        match writing.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }
}

impl Asked {
    fn fail(self, why: Trouble) {
        if let Some(tell) = self.tell {
            let _ = tell.send(Err(why));
        }
    }
}

fn lost() -> Trouble {
    Trouble::Unknown("the connection was lost".to_owned())
}

/// A word that only asks for one back.
pub(super) fn ping() -> Vec<u8> {
    Out::request(Op::Ping).numbered(PING)
}

/// A watch that is waited for. Dropped, the server need not tell.
struct Watching {
    pipe: Arc<Pipe>,
    key: Key,
    number: u64,
}

impl Watching {
    async fn until(self, fired: oneshot::Receiver<Seen>) -> Seen {
        fired.await.unwrap_or(Seen::Changed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.pipe.unwatch(&self.key, self.number);
    }
}

#[cfg(test)]
mod tests;
