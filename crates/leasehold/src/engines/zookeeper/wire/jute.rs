//! ZooKeeper's encoding: numbers with the large end first, bytes with their length before them.

use super::terms::{Facts, Trouble};

/// What a request asks for.
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
    /// Create, answered with what is known of the node.
    Create2 = 15,
    RemoveWatches = 18,
    CreateContainer = 19,
    Auth = 100,
    SetWatches = 101,
    CloseSession = -11,
}

/// Room for what most requests need.
const ROOM: usize = 256;

/// Bytes to send, in a frame: their length comes first.
#[derive(Debug, Clone)]
pub(super) struct Out(Vec<u8>);

impl Out {
    /// A frame with nothing in it.
    pub(super) fn frame() -> Self {
        let mut room = Vec::with_capacity(ROOM);
        room.extend_from_slice(&[0; 4]);
        Self(room)
    }

    /// A request that has no number yet.
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
        // Nothing here is longer than the server takes, which is a megabyte unless it is told otherwise.
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

    /// The frame of a request, with this number.
    pub(super) fn numbered(mut self, number: i32) -> Vec<u8> {
        self.0[4..8].copy_from_slice(&number.to_be_bytes());
        self.done()
    }

    /// The frame.
    pub(super) fn done(mut self) -> Vec<u8> {
        let length = self.0.len() as i32 - 4;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Bytes that came, read from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Trouble> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(senseless)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn int(&mut self) -> Result<i32, Trouble> {
        let bytes = self.take(4)?.try_into().map_err(|_| senseless())?;
        Ok(i32::from_be_bytes(bytes))
    }

    pub(super) fn long(&mut self) -> Result<i64, Trouble> {
        let bytes = self.take(8)?.try_into().map_err(|_| senseless())?;
        Ok(i64::from_be_bytes(bytes))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Trouble> {
        Ok(self.take(1)?[0] != 0)
    }

    /// None as long as minus one is nothing at all, which is taken for empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Trouble> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| senseless())?),
        }
    }

    pub(super) fn str(&mut self) -> Result<&'a str, Trouble> {
        std::str::from_utf8(self.bytes()?).map_err(|_| senseless())
    }

    pub(super) fn text(&mut self) -> Result<String, Trouble> {
        self.str().map(str::to_owned)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Trouble> {
        let count = self.int()?;
        (0..count).map(|_| self.text()).collect()
    }

    pub(super) fn facts(&mut self) -> Result<Facts, Trouble> {
        let czxid = self.long()?;
        let _changed_by = self.long()?;
        let ctime = self.long()?;
        let _changed_at = self.long()?;
        let _versions = (self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let _sizes = (self.int()?, self.int()?);
        let _children_changed_by = self.long()?;
        Ok(Facts {
            czxid,
            ctime,
            owner,
        })
    }
}

/// What came is not what the protocol allows.
pub(super) fn senseless() -> Trouble {
    Trouble::Unknown("the server's answer makes no sense".to_owned())
}

/// What the server's refusal means.
pub(super) fn refusal(code: i32) -> Trouble {
    let refused = |why: &str| Trouble::Refused(format!("the server refuses it: {why}"));
    match code {
        -101 => Trouble::NoNode,
        -110 => Trouble::Exists,
        -102 => Trouble::Denied("the server does not allow it to this login".to_owned()),
        -115 => Trouble::Denied("the server does not know this login".to_owned()),
        -112 => Trouble::Dead("the session has ended".to_owned()),
        -5 => refused("it does not understand the request"),
        -6 => refused("it is too old to know how"),
        -8 => refused("a path or an argument is not allowed"),
        -103 => refused("the node has another version"),
        -108 => refused("the parent is ephemeral"),
        -111 => refused("the node has children"),
        -114 => refused("the access list is not valid"),
        -119 => refused("it is read-only"),
        -125 => refused("the quota is used up"),
        code => Trouble::Unknown(format!("the server says error {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let frame = Out::request(Op::Delete).text("/a").int(-1).numbered(7);
        let mut read = In(&frame);
        assert_eq!(read.int().unwrap() as usize, frame.len() - 4);
        assert_eq!((read.int().unwrap(), read.int().unwrap()), (7, 2));
        assert_eq!(
            (read.text().unwrap().as_str(), read.int().unwrap()),
            ("/a", -1)
        );
        let frame = Out::frame()
            .long(-9)
            .flag(true)
            .texts(&["x".into(), String::new()])
            .done();
        let mut read = In(&frame[4..]);
        assert_eq!((read.long().unwrap(), read.flag().unwrap()), (-9, true));
        assert_eq!(read.texts().unwrap(), ["x", ""]);
    }

    #[test]
    fn what_is_short_or_odd_is_told() {
        assert!(In(&[0, 0]).int().is_err());
        assert!(In(&[0, 0, 0, 9, 1]).bytes().is_err());
        assert!(In(&[255, 255, 255, 0]).bytes().is_err());
        assert_eq!(In(&[255; 4]).bytes().unwrap(), b"");
        assert!(In(&[0, 0, 0, 1, 0xff]).text().is_err());
    }
}
