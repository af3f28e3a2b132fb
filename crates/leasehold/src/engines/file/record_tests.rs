//! Any damage to the bytes of the record being written leaves the state before it or the new one.

use proptest::prelude::*;

use super::super::notify;
use super::*;
use crate::claim::Mode;
use crate::fuzz::Fuzz;
use crate::line::{Ask, Moment};

const BOOT_ID: BootId = [7; 16];

fn name() -> Name {
    Name::new("stock:42").expect("well made")
}

fn line(claims: usize, last: u64) -> Line {
    let places = (0..claims).map(|n| Place {
        id: ClaimId::from_u128(n as u128 + 1),
        session: SessionId::from_u128(u128::MAX - n as u128),
        weight: 1,
        lease: 10,
        since: n as u64,
        deadline: 100 + n as u64,
        fence: (n == 0).then(|| Fence::new(last)),
    });
    Line::restore(1, last, places.collect())
}

fn bytes(sequence: u64, line: &Line) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, sequence, &BOOT_ID, &name(), line);
    bytes
}

/// A file as a few writes in a row leave it, with where the last of them went.
struct File {
    bytes: Vec<u8>,
    spot: Option<Spot>,
}

impl File {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            spot: None,
        }
    }

    fn write(&mut self, line: &Line) -> usize {
        let sequence = self.spot.map_or(1, |spot| spot.sequence + 1);
        let new = bytes(sequence, line);
        let at = self.spot.map_or(0, |spot| spot.next(new.len()));
        if let Some(old) = self.spot {
            assert!(
                at >= old.at + old.len || at + new.len() <= old.at,
                "{old:?} overwritten"
            );
        }
        if self.bytes.len() < at + new.len() {
            self.bytes.resize(at + new.len(), 0);
        }
        self.bytes[at..at + new.len()].copy_from_slice(&new);
        let len = new.len();
        self.spot = Some(Spot { at, len, sequence });
        at
    }

    fn state(&self) -> Result<Option<Line>, Fault> {
        Ok(current(&self.bytes)?.map(|record| record.line(&BOOT_ID)))
    }
}

#[test]
fn an_empty_file_is_a_fresh_line_and_another_file_is_not_ours() {
    assert!(current(b"").unwrap().is_none());
    assert_eq!(current(b"#!/bin/sh").unwrap_err(), Fault::Foreign);
    assert_eq!(current(&[0; 4096]).unwrap_err(), Fault::Foreign);
    assert_eq!(
        current(&bytes(1, &line(1, 5))[..70]).unwrap_err(),
        Fault::Torn
    );
}

#[test]
fn a_later_format_is_refused() {
    let mut record = bytes(1, &line(1, 5));
    record[FORMAT].copy_from_slice(&9_u32.to_le_bytes());
    let checksum = checksum(&record);
    record[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(current(&record).unwrap_err(), Fault::Newer(9));
}

#[test]
fn an_earlier_boot_leaves_only_the_fence() {
    let record = bytes(1, &line(3, 41));
    let record = current(&record).unwrap().unwrap();
    assert_eq!(record.line(&BOOT_ID).places().len(), 3);
    let after = record.line(&[8; 16]);
    assert!(after.is_idle());
    assert_eq!(after.last_fence(), 41);
}

/// Every prefix of the next record on top of the file: the state before, until the last byte is there.
#[test]
fn a_torn_write_leaves_the_state_before() {
    for (old, new) in [(1, 2), (40, 41), (40, 1), (3, 200)] {
        for writes in 1..4 {
            let mut file = File::new();
            for n in 0..writes {
                let _ = file.write(&line(old, 5 + n));
            }
            let before = file.state().unwrap();
            let untouched = file.bytes.clone();
            let at = file.write(&line(new, 99));
            let whole = file.bytes.clone();
            let len = file.spot.unwrap().len;
            for cut in 0..len {
                let mut torn = untouched.clone();
                torn.resize(torn.len().max(at + cut), 0);
                torn[at..at + cut].copy_from_slice(&whole[at..at + cut]);
                file.bytes = torn;
                // Where the old bytes happen to be the new ones, the write was whole a little earlier.
                let state = file.state().unwrap();
                assert!(
                    state == before || file.bytes == whole,
                    "cut at {cut} of {len}, {old} to {new}"
                );
            }
            file.bytes = whole;
            assert_eq!(file.state().unwrap(), Some(line(new, 99)));
        }
    }
}

#[test]
fn a_flipped_byte_never_passes_for_a_state() {
    let mut file = File::new();
    let (a, b) = (line(1, 5), line(2, 9));
    let _ = file.write(&a);
    let alone = file.bytes.clone();
    let _ = file.write(&b);
    for at in 0..file.bytes.len() {
        for bit in 0..8 {
            let mut two = File {
                bytes: file.bytes.clone(),
                spot: None,
            };
            two.bytes[at] ^= 1 << bit;
            match two.state() {
                Ok(Some(state)) => assert!(state == a || state == b, "byte {at}"),
                Ok(None) => panic!("byte {at} made the file empty"),
                Err(fault) => assert_eq!(fault, Fault::Foreign, "byte {at}"),
            }
        }
    }
    for at in 0..alone.len() {
        let mut one = alone.clone();
        one[at] ^= 0x10;
        assert!(current(&one).is_err(), "byte {at}");
    }
}

#[test]
fn grows_and_shrinks_over_the_same_file() {
    let mut file = File::new();
    for claims in [0, 1, 30, 31, 60, 200, 199, 500, 10, 1, 0, 0, 29, 2] {
        let line = line(claims, 7);
        let _ = file.write(&line);
        assert_eq!(file.state().unwrap(), Some(line), "{claims} claims");
    }
}

#[test]
fn small_states_stay_in_the_first_page() {
    let mut file = File::new();
    let long = Name::new("x".repeat(512)).unwrap();
    for claims in 0..200 {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, &BOOT_ID, &long, &line(claims % 20, 7));
        assert!(bytes.len() <= SECOND);
        let _ = file.write(&line(claims % 20, 7));
    }
    assert!(file.bytes.len() <= 4096);
}

proptest! {
    #[test]
    fn a_written_record_is_read(
        claims in 0_usize..64, last in 1_u64..i64::MAX as u64, sequence in 0..u64::MAX, boot: BootId, name in "\\PC{1,100}",
    ) {
        let (name, line) = (Name::new(name).unwrap(), line(claims, last));
        let mut bytes = Vec::new();
        encode(&mut bytes, sequence, &boot, &name, &line);
        let record = current(&bytes).unwrap().unwrap();
        prop_assert_eq!(record.name, name.as_str());
        prop_assert_eq!(record.spot, Spot { at: 0, len: bytes.len(), sequence });
        prop_assert_eq!(record.line(&boot), line);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(mut bytes: Vec<u8>, ours: bool) {
        if ours {
            drop(bytes.splice(0..0, *MAGIC));
        }
        let _ = current(&bytes);
    }
}

/// What another program would have to do to be believed: the length and the checksum of both records are right.
fn sealed(file: &mut [u8]) {
    for at in [SECOND, 0] {
        let end = if at == 0 {
            file.len().min(SECOND)
        } else {
            file.len()
        };
        let Some(record) = file.get_mut(at..end).filter(|record| record.len() >= HEAD) else {
            continue;
        };
        let length = record.len() as u32;
        record[..MAGIC.len()].copy_from_slice(MAGIC);
        record[FORMAT].copy_from_slice(&VERSION.to_le_bytes());
        record[LENGTH].copy_from_slice(&length.to_le_bytes());
        let checksum = checksum(record);
        record[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Everything that is done to a line: whatever was stored, it is done.
fn use_it(mut line: Line) -> (usize, usize, bool) {
    let (all, holders) = (line.places().len(), line.holders().len());
    let first = line
        .places()
        .next()
        .map_or(ClaimId::from_u128(1), |place| place.id);
    let ask = |id| Ask {
        id,
        session: SessionId::from_u128(1),
        mode: Mode::Mutex,
        lease: 10,
        waits: true,
    };
    let at = |now| Moment { now, floor: 7 };
    let joined = line.claim(&ask(ClaimId::from_u128(2)), at(5)).0.is_ok();
    let _ = line.claim(&ask(first), at(6));
    let _ = (line.heartbeat(first, at(7)), line.sweep(at(8)));
    let _ = (
        line.release(first, u32::MAX, at(9)),
        line.evict(None, at(u64::MAX)),
    );
    (all.min(3), holders.min(3), joined)
}

/// An input is the content of a line's file; or, behind an odd byte, that of one with good checksums.
#[cfg_attr(test, test)]
pub(crate) fn inputs_that_no_program_of_ours_wrote() {
    let mut two = File::new();
    let _ = (two.write(&line(2, 5)), two.write(&line(3, 9)));
    let seed = |first: u8| [&[first][..], &two.bytes].concat();
    let fuzz = Fuzz {
        name: "record",
        words: &[MAGIC, &BOOT_ID],
    };
    fuzz.run(&[seed(0), seed(1)], |input| {
        let (first, bytes) = input.split_first().unwrap_or((&0, &[]));
        let mut file = bytes.to_vec();
        if first % 2 == 1 {
            sealed(&mut file);
        }
        let told = notify::decode(bytes).map(|event| std::mem::discriminant(&event));
        let used = match current(&file) {
            Err(fault) => Err(std::mem::discriminant(&fault)),
            Ok(None) => Ok(None),
            Ok(Some(record)) => {
                let spot = record.spot.next(record.spot.len);
                let kept = record.line(&BOOT_ID);
                Ok(Some((
                    spot.min(3 * SECOND) / SECOND,
                    use_it(kept),
                    use_it(record.line(&[0; 16])),
                )))
            }
        };
        (told, used)
    });
}
