//! Questions down one stream and answers up it, in the same order, for any number of callers.
//!
//! Whoever asks while nobody else does writes to the stream itself: nobody has to be woken for that. While others wait
//! for answers it leaves the writing to the driver, who sends what many have asked in one go.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::error::Trouble;
use super::resp::{self, Call, Reply, Said};
use super::stream::{Reading, Writing};
use crate::sync::Shared;

/// Takes what the server says unasked: the channel and the message.
pub(super) type Hear = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// Where questions go in.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Shared<Sending>>);

/// Moves the bytes of a pipe; ends when its stream does.
pub(super) struct Driver {
    pipe: Pipe,
    reading: Reading,
    /// What was read and not yet understood, and room for more.
    heard: Vec<u8>,
    filled: usize,
    hear: Hear,
    /// Whether messages come as answers do: so it is before RESP3, on a connection that only listens.
    plain: bool,
}

struct Sending {
    /// None once the stream has ended.
    writing: Option<Writing>,
    /// What was asked, and how much of it is written.
    out: Vec<u8>,
    written: usize,
    /// Who waits for answers, in the order of the questions.
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

/// Room for what is read at once, and for what is kept between questions.
const ROOM: usize = 16 * 1024;

/// The pipe over a stream.
pub(super) fn over(
    (reading, writing): (Reading, Writing),
    hear: Hear,
    plain: bool,
) -> (Pipe, Driver) {
    let pipe = Pipe(Arc::new(Shared::from(Sending {
        writing: Some(writing),
        out: Vec::new(),
        written: 0,
        asked: VecDeque::new(),
        driver: Waker::noop().clone(),
    })));
    let driver = Driver {
        pipe: pipe.clone(),
        reading,
        heard: vec![0; ROOM],
        filled: 0,
        hear,
        plain,
    };
    (pipe, driver)
}

impl Pipe {
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
        // What it cannot write, and what went wrong, the driver finds too.
        let mut nobody = Context::from_waker(Waker::noop());
        if !alone || !matches!(sending.write(&mut nobody), Poll::Ready(Ok(()))) {
            sending.driver.wake_by_ref();
        }
        Ok(())
    }

    /// Whoever waits is told that the answer will not come.
    fn end(&self, why: &str) {
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

    /// The next answer to the oldest question.
    fn answer(&self, reply: Reply) -> Result<(), String> {
        let mut sending = self.0.lock();
        let Some(asked) = sending.asked.front_mut() else {
            return Err(format!(
                "it said what nobody had asked: {:?}",
                Trouble::strange(reply)
            ));
        };
        asked.replies.push(reply);
        if asked.replies.len() == asked.wanted
            && let Some(asked) = sending.asked.pop_front()
        {
            drop(sending);
            // Whoever has gone meanwhile does not need it.
            let _ = asked.tell.send(Ok(asked.replies));
        }
        Ok(())
    }

    /// Whether the oldest question is confirmed by a push with this word.
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
            let mut sending = self.pipe.0.lock();
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
        while let Some((said, length)) =
            resp::read(&self.heard[at..self.filled]).map_err(|odd| format!("{odd:?}"))?
        {
            at += length;
            match said {
                Said::Answer(Reply::List(words)) if self.plain && is_message(&words) => {
                    self.pushed(words)?;
                }
                Said::Answer(reply) => self.pipe.answer(reply)?,
                Said::Push(words) => self.pushed(words)?,
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
            [first, ..] if self.pipe.confirms(first) => {
                return self.pipe.answer(Reply::List(words));
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
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let why = ready!(self.drive(context));
        self.pipe.end(&why);
        Poll::Ready(())
    }
}

/// A connection that is given up has ended for those who wait, too.
impl Drop for Driver {
    fn drop(&mut self) {
        self.pipe.end("another connection is made");
    }
}

#[cfg(test)]
mod tests;
