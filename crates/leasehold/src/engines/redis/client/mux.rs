//! Requests down one stream and answers up it, in the same order, for any number of callers.
//!
//! A caller that finds no other request under way writes to the stream itself, so that no task has to be woken for
//! that. While answers are awaited the writing is left to the driver, which sends what many have asked in one go.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::super::error::Trouble;
use super::connection::Hear;
use super::parse::{Parser, Said};
use super::resp::{Call, Reply};
use super::stream::{Reading, Writing};
use crate::sync::Shared;

/// Where requests go in.
#[derive(Clone)]
pub(super) struct Mux(Arc<Shared<Sending>>);

/// Moves the bytes of a mux; ends when its stream does, and says why.
pub(super) struct Driver {
    mux: Mux,
    reading: Reading,
    /// Bytes that were read and not yet parsed, and room for more.
    heard: Vec<u8>,
    filled: usize,
    parser: Parser,
    hear: Hear,
}

struct Sending {
    /// None once the stream has ended.
    writing: Option<Writing>,
    /// Requests, and how much of them is written.
    out: Vec<u8>,
    written: usize,
    /// The callers that wait for answers, in the order of the requests.
    asked: VecDeque<Asked>,
    driver: Waker,
}

struct Asked {
    replies: Vec<Reply>,
    wanted: usize,
    confirmed_by: Option<&'static [u8]>,
    tell: oneshot::Sender<Result<Vec<Reply>, Trouble>>,
}

pub(super) const CLOSED: &str = "the server closed the connection";

/// Room for what is read at once, and for what is kept between requests.
const ROOM: usize = 16 * 1024;

/// More than this is not kept for a server that does not read it.
const MOST_UNSENT: usize = 8 * 1024 * 1024;

/// The mux over a stream.
pub(super) fn over((reading, writing): (Reading, Writing), hear: Hear) -> (Mux, Driver) {
    let mux = Mux(Arc::new(Shared::from(Sending {
        writing: Some(writing),
        out: Vec::new(),
        written: 0,
        asked: VecDeque::new(),
        driver: Waker::noop().clone(),
    })));
    let driver = Driver {
        mux: mux.clone(),
        reading,
        heard: vec![0; ROOM],
        filled: 0,
        parser: Parser::default(),
        hear,
    };
    (mux, driver)
}

impl Mux {
    /// Sends calls in one go and answers for each. Dropped, it may have been sent all the same.
    pub(super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let (tell, told) = oneshot::channel();
        self.ask(calls, tell)?;
        told.await
            .unwrap_or_else(|_| Err(Trouble::Cut(CLOSED.to_owned())))
    }

    fn ask(
        &self,
        calls: &[Call],
        tell: oneshot::Sender<Result<Vec<Reply>, Trouble>>,
    ) -> Result<(), Trouble> {
        let mut sending = self.0.lock();
        if sending.writing.is_none() {
            return Err(Trouble::Down(CLOSED.to_owned()));
        }
        if sending.out.len() - sending.written > MOST_UNSENT {
            return Err(Trouble::Down("the server reads nothing".to_owned()));
        }
        let alone = sending.asked.is_empty();
        for call in calls {
            call.write_to(&mut sending.out);
        }
        sending.asked.push_back(Asked {
            replies: Vec::with_capacity(calls.len()),
            wanted: calls.len(),
            confirmed_by: calls.iter().find_map(|call| call.confirmed_by),
            tell,
        });
        // The driver finds what is left to write, and errors, too.
        let mut unwoken = Context::from_waker(Waker::noop());
        if !alone || !matches!(sending.write(&mut unwoken), Poll::Ready(Ok(()))) {
            sending.driver.wake_by_ref();
        }
        Ok(())
    }

    /// Whether the stream has ended: nothing is sent any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().writing.is_none()
    }

    /// Tells every caller that its answer will not come, and why.
    pub(super) fn end(&self, why: &str) {
        let mut sending = self.0.lock();
        sending.writing = None;
        let asked = std::mem::take(&mut sending.asked);
        let driver = std::mem::replace(&mut sending.driver, Waker::noop().clone());
        drop(sending);
        drop(driver);
        for asked in asked {
            let _ = asked.tell.send(Err(Trouble::Cut(why.to_owned())));
        }
    }

    /// The next answer to the oldest request.
    fn answer(&self, reply: Reply) -> Result<(), String> {
        let mut sending = self.0.lock();
        let Some(asked) = sending.asked.front_mut() else {
            return Err(format!(
                "an answer that belongs to no request: {}",
                Trouble::strange(reply)
            ));
        };
        asked.replies.push(reply);
        if asked.replies.len() == asked.wanted
            && let Some(asked) = sending.asked.pop_front()
        {
            drop(sending);
            // A caller that was dropped meanwhile does not need it.
            let _ = asked.tell.send(Ok(asked.replies));
        }
        Ok(())
    }

    /// Whether the oldest request is confirmed by a push with this word.
    fn confirms(&self, word: &Reply) -> bool {
        let sending = self.0.lock();
        let by = sending.asked.front().and_then(|asked| asked.confirmed_by);
        by.is_some_and(|by| word.is(by))
    }
}

impl Sending {
    /// Writes what there is to write.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Some(writing) = &mut self.writing else {
            return Poll::Ready(Ok(()));
        };
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut *writing).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                some => self.written += some,
            }
        }
        self.out.clear();
        self.out.shrink_to(ROOM);
        self.written = 0;
        Pin::new(writing).poll_flush(context)
    }
}

impl Driver {
    /// Until the stream ends; says why it did.
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<String> {
        {
            let mut sending = self.mux.0.lock();
            sending.driver.clone_from(context.waker());
            if let Poll::Ready(Err(error)) = sending.write(context) {
                return Poll::Ready(error.to_string());
            }
        }
        loop {
            match ready!(self.read(context)) {
                Ok(0) => return Poll::Ready(CLOSED.to_owned()),
                Err(error) => return Poll::Ready(error.to_string()),
                Ok(_) => {}
            }
            if let Err(why) = self.understand() {
                return Poll::Ready(why);
            }
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        if self.filled == self.heard.len() {
            self.heard.resize(2 * self.filled, 0);
        }
        let mut room = ReadBuf::new(&mut self.heard[self.filled..]);
        ready!(Pin::new(&mut self.reading).poll_read(context, &mut room))?;
        let some = room.filled().len();
        self.filled += some;
        Poll::Ready(Ok(some))
    }

    /// Passes on whatever is complete.
    fn understand(&mut self) -> Result<(), String> {
        let mut at = 0;
        loop {
            let rest = &self.heard[at..self.filled];
            let (length, said) = self.parser.read(rest).map_err(|odd| odd.to_string())?;
            at += length;
            match said {
                None => break,
                Some(Said::Answer(reply)) => self.mux.answer(reply)?,
                Some(Said::Push(words)) => self.pushed(words)?,
            }
        }
        self.heard.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled == 0 {
            self.heard.truncate(ROOM);
            self.heard.shrink_to(ROOM);
        }
        Ok(())
    }

    fn pushed(&self, words: Vec<Reply>) -> Result<(), String> {
        match &words[..] {
            [_, Reply::Text(channel), Reply::Text(message)] if is_message(&words) => {
                (self.hear)(channel, message);
            }
            [first, ..] if self.mux.confirms(first) => {
                return self.mux.answer(Reply::List(words));
            }
            // A channel that moved to another server, and whatever newer servers say.
            _ => {}
        }
        Ok(())
    }
}

fn is_message(words: &[Reply]) -> bool {
    matches!(words, [kind, ..] if kind.is(b"message") || kind.is(b"smessage"))
}

impl Future for Driver {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let why = ready!(self.drive(context));
        self.mux.end(&why);
        Poll::Ready(why)
    }
}

/// A connection that is given up has ended for its callers, too.
impl Drop for Driver {
    fn drop(&mut self) {
        self.mux.end("another connection is made");
    }
}

#[cfg(test)]
mod tests;
