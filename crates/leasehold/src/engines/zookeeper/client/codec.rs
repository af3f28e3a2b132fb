//! ZooKeeper's encoding: big-endian integers, strings after their length, and frames after theirs.

use super::error::{Answer, Trouble, refusal, senseless};

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Op {
    Create = 1,
    Delete = 2,
    GetData = 4,
    SetData = 5,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    Check = 13,
    Multi = 14,
    /// Create, answered with the node's `Stat`.
    Create2 = 15,
    RemoveWatches = 18,
    CreateContainer = 19,
    Auth = 100,
    SetWatches = 101,
    CloseSession = -11,
}

/// `Stat`: the server's record about a node besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) struct Stat {
    /// The zxid of the change that made the node.
    pub(in crate::engines::zookeeper) czxid: i64,
    /// When it was made, in milliseconds of the server's wall clock.
    pub(in crate::engines::zookeeper) ctime: i64,
    /// The session it belongs to.
    pub(in crate::engines::zookeeper) owner: i64,
}

/// A frame to send.
#[derive(Debug, Clone)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn frame() -> Self {
        Self(vec![0; 4])
    }

    /// A request whose xid is still to be set.
    pub(super) fn request(op: Op) -> Self {
        Self::frame().int(0).int(op as i32)
    }

    #[must_use]
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    #[must_use]
    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    #[must_use]
    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.push(flag.into());
        self
    }

    #[must_use]
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut this = self.int(bytes.len() as i32);
        this.0.extend_from_slice(bytes);
        this
    }

    #[must_use]
    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    #[must_use]
    pub(super) fn texts(self, texts: &[String]) -> Self {
        let this = self.int(texts.len() as i32);
        texts.iter().fold(this, |this, text| this.text(text))
    }

    /// Begins one operation of a `multi`.
    #[must_use]
    pub(super) fn part(self, op: Op) -> Self {
        self.int(op as i32).flag(false).int(-1)
    }

    /// Ends a `multi`.
    #[must_use]
    pub(super) fn last_part(self) -> Self {
        self.int(-1).flag(true).int(-1)
    }

    /// The frame of a request with this xid.
    pub(super) fn numbered(mut self, xid: i32) -> Vec<u8> {
        self.0[4..8].copy_from_slice(&xid.to_be_bytes());
        self.done()
    }

    pub(super) fn done(mut self) -> Vec<u8> {
        let length = self.0.len() as i32 - 4;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Received bytes, read from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, length: usize) -> Answer<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(senseless)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn int(&mut self) -> Answer<i32> {
        let bytes = self.take(4)?.try_into().map_err(|_| senseless())?;
        Ok(i32::from_be_bytes(bytes))
    }

    pub(super) fn long(&mut self) -> Answer<i64> {
        let bytes = self.take(8)?.try_into().map_err(|_| senseless())?;
        Ok(i64::from_be_bytes(bytes))
    }

    pub(super) fn flag(&mut self) -> Answer<bool> {
        Ok(self.take(1)?[0] != 0)
    }

    /// A length of minus one stands for no bytes.
    pub(super) fn bytes(&mut self) -> Answer<&'a [u8]> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| senseless())?),
        }
    }

    pub(super) fn text(&mut self) -> Answer<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| senseless())
    }

    /// The count is the server's word: room is made only for texts that are there.
    pub(super) fn texts(&mut self) -> Answer<Vec<String>> {
        let count = self.int()?;
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }

    pub(super) fn stat(&mut self) -> Answer<Stat> {
        let czxid = self.long()?;
        let _mzxid = self.long()?;
        let ctime = self.long()?;
        let _mtime = self.long()?;
        let _versions = (self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let _lengths = (self.int()?, self.int()?);
        let _pzxid = self.long()?;
        Ok(Stat {
            czxid,
            ctime,
            owner,
        })
    }

    /// The answer to a `multi`: all parts were done, or the first refusal that is a reason.
    pub(super) fn parts(&mut self) -> Answer<()> {
        /// This part was not done because of another.
        const ANOTHER: i32 = -2;
        let mut refused = None;
        loop {
            let (kind, last, _) = (self.int()?, self.flag()?, self.int()?);
            match kind {
                _ if last => return refused.map_or(Ok(()), |code| Err(refusal(code))),
                -1 => match self.int()? {
                    0 | ANOTHER => {}
                    code => refused = refused.or(Some(code)),
                },
                kind if kind == Op::Create as i32 => drop(self.text()?),
                _ => {}
            }
        }
    }
}

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// The length of a frame that is over the cap: only its header was kept.
    pub(super) cut: Option<usize>,
}

/// Cuts received bytes into frames, and keeps no more of one than the cap.
#[derive(Debug)]
pub(super) struct Frames {
    /// Received and not yet taken from `start` on.
    bytes: Vec<u8>,
    start: usize,
    /// How much of a frame over the cap is still to come.
    skip: usize,
    pub(super) cap: usize,
}

/// The head of an answer: xid, zxid and error code.
const HEADER: usize = 16;

/// Room for what is read at once.
const ROOM: usize = 16 * 1024;

impl Frames {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(ROOM),
            start: 0,
            skip: 0,
            cap,
        }
    }

    /// Where to put what is read next.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        drop(self.bytes.drain(..self.start));
        self.start = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(ROOM);
        }
        self.bytes.reserve(ROOM / 4);
        &mut self.bytes
    }

    /// The next frame, once it has arrived.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Trouble> {
        let skipped = self.skip.min(self.bytes.len() - self.start);
        self.start += skipped;
        self.skip -= skipped;
        let arrived = &self.bytes[self.start..];
        let Some((length, arrived)) = arrived.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| senseless())?;
        let over = length > self.cap.max(HEADER);
        let kept = if over { HEADER } else { length };
        let Some(bytes) = arrived.get(..kept) else {
            return Ok(None);
        };
        let bytes = bytes.to_vec();
        self.start += 4 + kept;
        self.skip = length - kept;
        let cut = over.then_some(length);
        Ok(Some(Frame { bytes, cut }))
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::super::super::names;
    use super::*;
    use crate::engines::ordered::data::{Note, Trace};
    use crate::fuzz::Fuzz;

    #[test]
    fn what_is_encoded_is_decoded() {
        let frame = Encoder::request(Op::Delete).text("/a").int(-1).numbered(7);
        let mut read = Decoder(&frame);
        assert_eq!(read.int().unwrap() as usize, frame.len() - 4);
        assert_eq!((read.int().unwrap(), read.int().unwrap()), (7, 2));
        assert_eq!((read.text().unwrap(), read.int().unwrap()), ("/a", -1));
        let texts = ["x".into(), String::new()];
        let frame = Encoder::frame().long(-9).flag(true).texts(&texts).done();
        let mut read = Decoder(&frame[4..]);
        assert_eq!((read.long().unwrap(), read.flag().unwrap()), (-9, true));
        assert_eq!(read.texts().unwrap(), ["x", ""]);
        assert_eq!(Decoder(&[255; 4]).bytes().unwrap(), b"");
    }

    #[test]
    fn one_refused_part_refuses_a_multi() {
        let answer = |parts: &[(i32, i32)]| {
            let written = parts.iter().fold(Encoder::frame(), |out, (kind, code)| {
                let out = out.int(*kind).flag(false).int(*code);
                match kind {
                    -1 => out.int(*code),
                    1 => out.text("/made"),
                    _ => out,
                }
            });
            Decoder(&written.last_part().done()[4..]).parts()
        };
        let (delete, create) = (Op::Delete as i32, Op::Create as i32);
        assert_eq!(answer(&[(delete, 0), (create, 0)]), Ok(()));
        assert_eq!(answer(&[(-1, -101), (-1, -2)]), Err(Trouble::NoNode));
        assert_eq!(answer(&[(-1, 0), (-1, -110)]), Err(Trouble::Exists));
    }

    #[test]
    fn of_a_frame_over_the_cap_the_header_is_kept() {
        let mut frames = Frames::new(32);
        let long = Encoder::frame().int(7).long(9).int(0).bytes(&[1; 100]);
        let short = Encoder::frame().int(8).long(9).int(0).done();
        let sent = [long.done(), short.clone()].concat();
        let mut taken = Vec::new();
        for byte in sent {
            frames.room().push(byte);
            taken.extend(frames.next().unwrap());
        }
        assert_eq!((taken[0].bytes.len(), taken[0].cut), (16, Some(120)));
        assert_eq!((&taken[1].bytes[..], taken[1].cut), (&short[4..], None));
    }

    proptest! {
        /// No bytes, in any pieces, make a parser panic or keep more than the cap.
        #[test]
        fn any_bytes_are_survived(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let mut frames = Frames::new(256);
            'all: for piece in pieces {
                frames.room().extend(piece);
                loop {
                    match frames.next() {
                        Ok(Some(frame)) => {
                            prop_assert!(frame.bytes.len() <= 256);
                            let read = Decoder(&frame.bytes);
                            let _ = (read.clone().texts(), read.clone().stat());
                            let _ = (read.clone().parts(), read.clone().text());
                        }
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
                prop_assert!(frames.bytes.len() - frames.start <= 256 + 4 + 200);
                prop_assert!(frames.bytes.capacity() <= 4 * ROOM);
            }
        }
    }

    /// Everything that is made of a frame: whatever it says, it is understood or refused.
    fn use_it(frame: &Frame) -> Vec<u32> {
        let read = Decoder(&frame.bytes);
        let (texts, data) = (read.clone().texts(), read.clone().bytes());
        let texts = texts.unwrap_or_default();
        let nodes = names::nodes(&texts).len();
        let named = texts.iter().filter_map(|text| names::decode(text)).count();
        let ends = texts.iter().filter(|text| names::is_at_the_end(text));
        let data = data.unwrap_or(&frame.bytes);
        let parts = match read.clone().parts() {
            Ok(()) => 0,
            Err(Trouble::NoNode) => 1,
            Err(_) => 2,
        };
        vec![
            u32::from(frame.cut.is_some()),
            texts.len().min(4) as u32,
            nodes.min(2) as u32,
            named.min(2) as u32,
            ends.count().min(2) as u32,
            u32::from(Note::read(data).is_some()),
            u32::from(Trace::read(data).is_some()),
            u32::from(read.clone().stat().is_ok()),
            parts,
        ]
    }

    /// The first byte of an input says in what pieces the rest comes.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_server_wrote() {
        let fuzz = Fuzz {
            name: "jute",
            words: &[
                b"_c_",
                b"-lock-",
                b"lease-",
                b"__READ__",
                b"__WRIT__",
                b"0000000001",
                b"leasehold/1 ",
                b"__REVOKE__",
                b"\xff\xff\xff\xff",
                b"%2F",
            ],
        };
        fuzz.run(&[], |input| {
            let (piece, bytes) = input.split_first().unwrap_or((&0, &[]));
            let (mut frames, mut taken) = (Frames::new(256), Vec::new());
            for piece in bytes.chunks(usize::from(*piece) + 1) {
                frames.room().extend(piece);
                loop {
                    match frames.next() {
                        Ok(Some(frame)) => taken.push(frame),
                        Ok(None) => break,
                        Err(_) => {
                            return (true, taken.iter().take(3).map(use_it).collect::<Vec<_>>());
                        }
                    }
                }
                assert!(frames.bytes.capacity() <= 4 * ROOM);
            }
            assert!(taken.iter().all(|frame| frame.bytes.len() <= 256));
            (false, taken.iter().take(3).map(use_it).collect())
        });
    }
}
