//! A line as bytes.
//!
//! A file holds records; the valid one with the largest sequence number is the state. A new record is written with
//! one write to where it does not touch the current one, so a write that is torn leaves the state before it. No
//! rename and no sync: the state of an earlier boot is void anyway.

use std::ops::Range;

use super::error::Fault;
use crate::claim::{ClaimId, SessionId};
use crate::fence::Fence;
use crate::line::{Line, Place};
use crate::name::Name;

const MAGIC: &[u8; 8] = b"leasehld";
const VERSION: u32 = 1;

/// The second place for a record. The first two fit into one page, so that a small state never needs more disk.
pub(super) const SECOND: usize = 2048;

// The magic, the checksum of all that follows it, the rest of the head, the name, the places.
const CHECKSUM: Range<usize> = 8..12;
const FORMAT: Range<usize> = 12..16;
const LENGTH: Range<usize> = 16..20;
const NAME_LENGTH: Range<usize> = 20..24;
const SEQUENCE: Range<usize> = 24..32;
const BOOT: Range<usize> = 32..48;
const CAPACITY: Range<usize> = 48..52;
const COUNT: Range<usize> = 52..56;
const LAST: Range<usize> = 56..64;
const HEAD: usize = 64;
const PLACE: usize = 68;

/// Identifies one boot of this machine.
pub(super) type BootId = [u8; 16];

/// Where a record is, and which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) sequence: u64,
}

/// A valid record.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) spot: Spot,
    pub(super) name: &'a str,
    bytes: &'a [u8],
}

impl Spot {
    /// Where a next record of this length goes: never onto this one.
    pub(super) fn next(self, len: usize) -> usize {
        match self.at {
            0 => self.len.next_power_of_two().max(SECOND),
            at if len <= at => 0,
            at => (at + self.len).next_power_of_two(),
        }
    }
}

/// The current record of a file; none in an empty one.
pub(super) fn current(file: &[u8]) -> Result<Option<Record<'_>>, Fault> {
    if file.is_empty() {
        return Ok(None);
    }
    if !file.starts_with(MAGIC) {
        return Err(Fault::Foreign);
    }
    let mut best: Option<Record<'_>> = None;
    for at in spots().take_while(|at| *at < file.len()) {
        let newer = best
            .as_ref()
            .map_or(0, |best| best.spot.sequence.saturating_add(1));
        best = Record::at(file, at, newer)?.or(best);
    }
    best.map(Some).ok_or(Fault::Torn)
}

/// Where records can be.
fn spots() -> impl Iterator<Item = usize> {
    let seconds = std::iter::successors(Some(SECOND), |at| at.checked_mul(2));
    std::iter::once(0).chain(seconds)
}

/// Writes a record into a buffer.
pub(super) fn encode(into: &mut Vec<u8>, sequence: u64, boot: &BootId, name: &Name, line: &Line) {
    let name = name.as_str().as_bytes();
    let places = line.places();
    let length = HEAD + name.len() + places.len() * PLACE;
    let mut head = [0; HEAD];
    let mut put = |at: Range<usize>, bytes: &[u8]| head[at].copy_from_slice(bytes);
    put(0..CHECKSUM.start, MAGIC);
    put(FORMAT, &VERSION.to_le_bytes());
    put(LENGTH, &(length as u32).to_le_bytes());
    put(NAME_LENGTH, &(name.len() as u32).to_le_bytes());
    put(SEQUENCE, &sequence.to_le_bytes());
    put(BOOT, boot);
    put(CAPACITY, &line.capacity().to_le_bytes());
    put(COUNT, &(places.len() as u32).to_le_bytes());
    put(LAST, &line.last_fence().to_le_bytes());
    into.clear();
    into.reserve(length);
    into.extend_from_slice(&head);
    into.extend_from_slice(name);
    for place in places {
        into.extend_from_slice(&bytes_of(place));
    }
    let checksum = checksum(into);
    into[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether two records say the same, whatever their number.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.len() > HEAD && a[BOOT.start..] == b[BOOT.start..]
}

impl<'a> Record<'a> {
    /// The record at an offset, if a whole one is there with at least this number.
    fn at(file: &'a [u8], at: usize, least: u64) -> Result<Option<Self>, Fault> {
        let bytes = &file[at..];
        if bytes.len() < HEAD || !bytes.starts_with(MAGIC) {
            return Ok(None);
        }
        let sequence = long(bytes, SEQUENCE);
        if sequence < least {
            return Ok(None);
        }
        let (length, names) = (number(bytes, LENGTH), number(bytes, NAME_LENGTH));
        let Some(bytes) = bytes.get(..length as usize).filter(|b| b.len() >= HEAD) else {
            return Ok(None);
        };
        if checksum(bytes) != number(bytes, CHECKSUM) {
            return Ok(None);
        }
        let version = number(bytes, FORMAT);
        if version != VERSION {
            return Err(Fault::Newer(version));
        }
        let name = bytes.get(HEAD..HEAD + names as usize);
        let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
            return Ok(None);
        };
        let spot = Spot {
            at,
            len: bytes.len(),
            sequence,
        };
        Ok(Some(Self { spot, name, bytes }))
    }

    /// The line it holds. Claims of an earlier boot are void, but for the last fence.
    pub(super) fn line(&self, boot: &BootId) -> Line {
        let last = long(self.bytes, LAST);
        if &self.bytes[BOOT] != boot {
            return Line::new(last);
        }
        let places = self.bytes[HEAD + self.name.len()..].chunks_exact(PLACE);
        let places = places.take(number(self.bytes, COUNT) as usize).map(place);
        Line::restore(number(self.bytes, CAPACITY), last, places.collect())
    }
}

fn bytes_of(place: &Place) -> [u8; PLACE] {
    let mut bytes = [0; PLACE];
    let mut put = |at: Range<usize>, part: &[u8]| bytes[at].copy_from_slice(part);
    put(0..16, &place.id.as_u128().to_le_bytes());
    put(16..32, &place.session.as_u128().to_le_bytes());
    put(32..36, &place.weight.to_le_bytes());
    put(36..44, &place.lease.to_le_bytes());
    put(44..52, &place.since.to_le_bytes());
    put(52..60, &place.deadline.to_le_bytes());
    put(60..68, &place.fence.map_or(0, Fence::get).to_le_bytes());
    bytes
}

fn place(bytes: &[u8]) -> Place {
    let fence = long(bytes, 60..68);
    Place {
        id: ClaimId::from_u128(u128::from_le_bytes(array(bytes, 0..16))),
        session: SessionId::from_u128(u128::from_le_bytes(array(bytes, 16..32))),
        weight: number(bytes, 32..36),
        lease: long(bytes, 36..44),
        since: long(bytes, 44..52),
        deadline: long(bytes, 52..60),
        fence: (fence != 0).then(|| Fence::new(fence)),
    }
}

/// Over everything behind itself.
fn checksum(record: &[u8]) -> u32 {
    crc32fast::hash(&record[CHECKSUM.end..])
}

fn number(bytes: &[u8], at: Range<usize>) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn long(bytes: &[u8], at: Range<usize>) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: Range<usize>) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at]);
    array
}

#[cfg(any(test, fuzzing))]
#[path = "record_tests.rs"]
pub(crate) mod tests;
