//! Telling another session what happened to its claim: one small datagram.
//!
//! A datagram may be lost; heartbeats repair that.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind::WouldBlock;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::dir::{Dir, io};
use super::error::Trouble;
use crate::claim::{ClaimId, SessionId};
use crate::engine::{Ended, Event};
use crate::fence::Fence;
use crate::line::Held;
use crate::sync::Shared;

/// No message is larger.
pub(super) const LARGEST: usize = 2048;

/// Texts are cut to this: they are for people.
const TEXT: usize = 512;

const HEAD: [u8; 3] = [b'L', b'H', 1];

/// A socket's path fits 107 bytes.
const SUN_PATH: usize = 107;

/// Sends to the sockets of sessions.
#[derive(Debug, Clone)]
pub(super) struct Post(Arc<Office>);

#[derive(Debug)]
struct Office {
    socket: UnixDatagram,
    /// Messages that did not fit into a socket's queue yet, in order.
    held_back: Shared<HashMap<SessionId, VecDeque<Vec<u8>>>>,
}

/// The kernel queues only ten messages per socket by default, so a burst has to wait for its reader: this many
/// messages, and this many milliseconds without one taken. After that heartbeats do.
const HELD_BACK: usize = 4096;
const GIVE_UP: usize = 2_000;

impl Post {
    pub(super) fn new() -> std::io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let held_back = Shared::default();
        Ok(Self(Arc::new(Office { socket, held_back })))
    }

    /// Sends an event, never waiting. A session that is gone needs none.
    pub(super) fn send(&self, dir: &Dir, to: SessionId, event: &Event) {
        let Some(message) = encode(event) else {
            return;
        };
        let path = dir.socket(to);
        let mut held_back = self.0.held_back.lock();
        if let Some(queue) = held_back.get_mut(&to) {
            if queue.len() < HELD_BACK {
                queue.push_back(message);
            }
        } else if self.0.is_full(&path, &message)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let _ = held_back.insert(to, VecDeque::from([message]));
            drop(runtime.spawn(self.0.clone().deliver(to, path)));
        }
    }
}

impl Office {
    /// Delivers what was held back for a session, as fast as it reads.
    async fn deliver(self: Arc<Self>, to: SessionId, path: PathBuf) {
        let mut stuck = 0;
        while stuck < GIVE_UP {
            tokio::time::sleep(Duration::from_millis(1)).await;
            stuck += 1;
            let mut held_back = self.held_back.lock();
            let Some(queue) = held_back.get_mut(&to) else {
                return;
            };
            while let Some(message) = queue.front() {
                if self.is_full(&path, message) {
                    break;
                }
                let _ = queue.pop_front();
                stuck = 0;
            }
            if queue.is_empty() {
                let _ = held_back.remove(&to);
                return;
            }
        }
        let _ = self.held_back.lock().remove(&to);
    }

    /// Sends a message, unless the socket's queue is full.
    fn is_full(&self, path: &Path, message: &[u8]) -> bool {
        let sent = within_limit(path).and_then(|(path, _dir)| self.socket.send_to(message, path));
        sent.is_err_and(|error| error.kind() == WouldBlock)
    }
}

/// The socket on which a session hears.
pub(super) fn bind(path: &Path) -> Result<tokio::net::UnixDatagram, Trouble> {
    let bound = || {
        let (path, _dir) = within_limit(path)?;
        tokio::net::UnixDatagram::bind(path)
    };
    let socket = bound().map_err(|error| io("make the socket", path, &error))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).map_err(|error| io("protect", path, &error))?;
    Ok(socket)
}

/// A way to the socket that is short enough, and what must stay open while it is used.
fn within_limit(path: &Path) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().len() <= SUN_PATH {
        return Ok((path.to_owned(), None));
    }
    let parent = std::fs::File::open(parent)?;
    let short = format!("/proc/self/fd/{}", parent.as_raw_fd());
    Ok((Path::new(&short).join(name), Some(parent)))
}

/// An event as a message; none for those that no other session can know of.
fn encode(event: &Event) -> Option<Vec<u8>> {
    let (kind, claim) = match event {
        Event::Granted(claim, _) => (1, claim),
        Event::Wanted(claim) => (2, claim),
        Event::Ended(claim, Ended::Expired) => (3, claim),
        Event::Ended(claim, Ended::Evicted { .. }) => (4, claim),
        Event::Ended(claim, _) => (5, claim),
        Event::Asked(_) | Event::Unsure | Event::Down(_) => return None,
    };
    let mut message = HEAD.to_vec();
    message.push(kind);
    message.extend(claim.as_u128().to_le_bytes());
    match event {
        Event::Granted(_, held) => {
            message.extend(held.fence.get().to_le_bytes());
            message.extend(held.block.to_le_bytes());
            message.push(held.wanted.into());
        }
        Event::Ended(_, Ended::Evicted { by, why }) => {
            message.extend(cut(&by.replace('\0', " "), TEXT).as_bytes());
            message.push(0);
            message.extend(cut(why, TEXT).as_bytes());
        }
        _ => {}
    }
    Some(message)
}

/// The event in a message; none in one that is not ours.
pub(super) fn decode(message: &[u8]) -> Option<Event> {
    let (kind, rest) = message.strip_prefix(&HEAD)?.split_first()?;
    let (claim, rest) = rest.split_first_chunk()?;
    let claim = ClaimId::from_u128(u128::from_le_bytes(*claim));
    match (kind, rest) {
        (1, rest) => Some(Event::Granted(claim, held(rest)?)),
        (2, []) => Some(Event::Wanted(claim)),
        (3, []) => Some(Event::Ended(claim, Ended::Expired)),
        (4, texts) => {
            let (by, why) = std::str::from_utf8(texts).ok()?.split_once('\0')?;
            let (by, why) = (by.to_owned(), why.to_owned());
            Some(Event::Ended(claim, Ended::Evicted { by, why }))
        }
        (5, []) => Some(Event::Ended(claim, Ended::Forgotten)),
        _ => None,
    }
}

fn held(bytes: &[u8]) -> Option<Held> {
    let (fence, rest) = bytes.split_first_chunk()?;
    let (block, rest) = rest.split_first_chunk()?;
    let [wanted @ (0 | 1)] = rest else {
        return None;
    };
    Some(Held {
        fence: Fence::new(u64::from_le_bytes(*fence)),
        block: u32::from_le_bytes(*block),
        wanted: *wanted == 1,
    })
}

/// The beginning of a text, whole characters only.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= most).last();
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_as_they_were_sent() {
        let claim = ClaimId::random();
        let held = Held {
            fence: Fence::new(i64::MAX as u64),
            block: 256,
            wanted: true,
        };
        let evicted = |by: &str, why: &str| Ended::Evicted {
            by: by.into(),
            why: why.into(),
        };
        for event in [
            Event::Granted(claim, held),
            Event::Wanted(claim),
            Event::Ended(claim, Ended::Expired),
            Event::Ended(claim, Ended::Forgotten),
            Event::Ended(claim, evicted("host:1", "it hangs")),
            Event::Ended(claim, evicted("", "")),
        ] {
            let message = encode(&event).unwrap();
            assert_eq!(decode(&message), Some(event.clone()));
            let texts = matches!(event, Event::Ended(_, Ended::Evicted { .. }));
            for cut in 0..message.len() {
                let part = decode(&message[..cut]);
                assert!(part.is_none() || texts, "{event:?} cut at {cut}: {part:?}");
            }
            let mut other = message;
            other[2] = 2;
            assert_eq!(decode(&other), None, "another version");
        }
        assert_eq!(decode(b"hello"), None);
    }

    #[test]
    fn long_texts_are_cut() {
        let (claim, long) = (ClaimId::random(), "é".repeat(3000));
        let ended = Ended::Evicted {
            by: long.clone(),
            why: long,
        };
        let message = encode(&Event::Ended(claim, ended)).unwrap();
        assert!(message.len() < LARGEST);
        assert!(decode(&message).is_some());
    }
}
