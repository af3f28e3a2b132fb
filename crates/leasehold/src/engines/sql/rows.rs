//! A line as rows, and the statements that take it from one state to the next.

use std::collections::{BTreeMap, HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::tables::Tables;
use super::wire::{Rows, Trouble, What};
use crate::claim::{ById, ClaimId, SessionId};
use crate::clock::Micros;
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::{Line, Place};
use crate::name::Name;
use crate::sync::Shared;

/// A line's key: the first 16 bytes of the digest of its name. No limits of length, case or collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u128);

impl Key {
    pub(super) fn of(name: &Name) -> Self {
        let digest = Sha256::digest(name.as_str().as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(key))
    }
}

/// The lines that this process has seen a row of, as far as it remembers.
#[derive(Debug, Default)]
pub(super) struct Known(Shared<HashSet<Key>>);

impl Known {
    /// So many are remembered at most.
    const MOST: usize = 4096;

    pub(super) fn has(&self, key: Key) -> bool {
        self.0.lock().contains(&key)
    }

    pub(super) fn add(&self, key: Key) {
        let mut known = self.0.lock();
        if known.len() >= Self::MOST {
            known.clear();
        }
        let _ = known.insert(key);
    }

    pub(super) fn remove(&self, key: Key) {
        let _ = self.0.lock().remove(&key);
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// A line as it was read.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) name: Vec<u8>,
    pub(super) line: Line,
    was: Line,
    /// The place column of each row of the claim table.
    places: ById<ClaimId, i64>,
}

/// The id in the row of a line that is idle.
pub(super) const FREE: u128 = 0;

/// The id in the row of a line whose claims are rows of their own.
pub(super) const CROWD: u128 = u128::MAX;

/// The columns of a claim, wherever it is kept.
const CLAIM: &str = "weight, lease, since, deadline, fence";

/// How lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// To look at them.
    None,
    /// To change them, after those that have them locked.
    Wait,
    /// To change them, unless one of them is locked.
    NoWait,
}

impl Tables {
    /// Reads these lines, and all of their claims; every line in use if there are no keys.
    pub(super) fn read(&self, keys: &[Key], lock: Lock) -> [String; 2] {
        let (hex, d) = (|column| self.dialect.hex(column), self.dialect);
        let keys: Vec<_> = keys.iter().map(|key| d.id(key.0)).collect();
        let only = match keys.is_empty() {
            true => String::new(),
            false => format!("k IN ({})", keys.join(", ")),
        };
        let lines = match keys.is_empty() {
            true => format!("WHERE id <> {}", d.id(FREE)),
            false => format!("WHERE {only}"),
        };
        let claims = match keys.is_empty() {
            true => String::new(),
            false => format!("WHERE {only} "),
        };
        let ids = format!("{}, {}", hex("id"), hex("session"));
        [
            format!(
                "SELECT {}, {}, capacity, last, {ids}, {CLAIM} FROM {} {lines} ORDER BY k{}",
                hex("k"),
                hex("name"),
                self.line,
                d.lock(lock)
            ),
            format!(
                "SELECT {}, place, {ids}, {CLAIM} FROM {} {claims}ORDER BY k, place",
                hex("k"),
                self.claim
            ),
        ]
    }

    /// What takes the stored line to the state it has now; empty if it did not change.
    pub(super) fn write(&self, stored: &Stored, now: Micros) -> Vec<String> {
        let Stored { line, was, .. } = stored;
        if line == was {
            return Vec::new();
        }
        let kept: &[&Place] = &line.places().collect::<Vec<_>>();
        let kept = if kept.len() > 1 { kept } else { &[] };
        let stays = stays(stored, kept);
        let mut packet: Vec<_> = self.remove_claims(stored, &stays).into_iter().collect();
        let before: ById<_, _> = was.places().map(|place| (place.id, place)).collect();
        let mut next = stored.places.values().max().map_or(0, |place| place + 1);
        for place in kept {
            match stays.get(&place.id) {
                Some(_) if before.get(&place.id) == Some(place) => {}
                Some(at) => packet.push(self.update_claim(stored.key, *at, place)),
                None => {
                    packet.push(self.insert_claim(stored.key, next, place));
                    next += 1;
                }
            }
        }
        packet.push(self.write_line(stored, next - 1, now));
        packet
    }

    /// The line's own row. A claim that is alone is kept in it; of a crowd, what `crowd.rs` decides by.
    fn write_line(&self, stored: &Stored, largest: i64, now: Micros) -> String {
        let (d, line) = (self.dialect, &stored.line);
        let places: Vec<_> = line.places().collect();
        let mut last = line.last_fence();
        let here = match places[..] {
            [place] => {
                // Its own block is not counted: its release counts what was used of it.
                if let Some(first) = place.fence.filter(|first| block_end(*first) == last) {
                    last = first.get() - 1;
                }
                format!(
                    "id = {}, session = {}, {}",
                    d.id(place.id.as_u128()),
                    d.id(place.session.as_u128()),
                    assigned(place)
                )
            }
            // When it was last used, for the cleaning of idle names.
            [] => format!("id = {}, since = {now}", d.id(FREE)),
            _ => format!(
                "id = {}, weight = {}, fence = {largest}, deadline = {}, since = {}(since + 1, {now})",
                d.id(CROWD),
                places.len(),
                places.iter().map(|place| place.deadline).min().unwrap_or(0),
                d.larger()
            ),
        };
        format!(
            "UPDATE {} SET capacity = {}, last = {last}, {here} WHERE k = {}",
            self.line,
            line.capacity(),
            d.id(stored.key.0)
        )
    }

    fn remove_claims(&self, stored: &Stored, stays: &ById<ClaimId, i64>) -> Option<String> {
        let gone = stored.places.iter();
        let gone = gone.filter(|(id, _)| !stays.contains_key(id));
        let gone: Vec<_> = gone.map(|(_, at)| at.to_string()).collect();
        (!gone.is_empty()).then(|| {
            format!(
                "DELETE FROM {} WHERE k = {} AND place IN ({})",
                self.claim,
                self.dialect.id(stored.key.0),
                gone.join(", ")
            )
        })
    }

    fn update_claim(&self, key: Key, at: i64, place: &Place) -> String {
        format!(
            "UPDATE {} SET {} WHERE k = {} AND place = {at}",
            self.claim,
            assigned(place),
            self.dialect.id(key.0)
        )
    }

    fn insert_claim(&self, key: Key, at: i64, place: &Place) -> String {
        let d = self.dialect;
        format!(
            "INSERT INTO {} (k, place, id, session, {CLAIM}) VALUES ({}, {at}, {}, {}, {}, {}, {}, {}, {})",
            self.claim,
            d.id(key.0),
            d.id(place.id.as_u128()),
            d.id(place.session.as_u128()),
            place.weight,
            place.lease,
            place.since,
            place.deadline,
            place.fence.map_or(0, Fence::get)
        )
    }
}

/// The claims that keep their row. One that left and joined again in the same step is at the end of the line now, and
/// so is its row.
fn stays(stored: &Stored, kept: &[&Place]) -> ById<ClaimId, i64> {
    let mut before = i64::MIN;
    let mut stays = ById::default();
    for place in kept {
        if let Some(at) = stored.places.get(&place.id)
            && *at > before
        {
            before = *at;
            let _ = stays.insert(place.id, *at);
        }
    }
    stays
}

fn assigned(place: &Place) -> String {
    format!(
        "weight = {}, lease = {}, since = {}, deadline = {}, fence = {}",
        place.weight,
        place.lease,
        place.since,
        place.deadline,
        place.fence.map_or(0, Fence::get)
    )
}

/// The lines that [`Tables::read`] asked for. What is damaged in one is no trouble of another.
pub(super) fn lines(lines: &Rows, claims: &Rows) -> BTreeMap<Key, Result<Stored, Trouble>> {
    let key_of = |row: &[Option<String>]| Some(Key(hex(cell(row, 0).ok()?).ok()?));
    let mut crowds = HashMap::<Key, Vec<Result<(i64, Place), Trouble>>>::new();
    for row in claims {
        if let Some(key) = key_of(row) {
            let place = number(row, 1).and_then(|at| Ok((at as i64, place(row, 2)?)));
            crowds.entry(key).or_default().push(place);
        }
    }
    let stored = lines.iter().filter_map(|row| {
        let key = key_of(row)?;
        let crowd = crowds.remove(&key).unwrap_or_default();
        let crowd: Result<Vec<_>, _> = crowd.into_iter().collect();
        Some((key, crowd.and_then(|crowd| line(key, row, crowd))))
    });
    stored.collect()
}

fn line(key: Key, row: &[Option<String>], mut crowd: Vec<(i64, Place)>) -> Result<Stored, Trouble> {
    let places = crowd.iter().map(|(at, place)| (place.id, *at)).collect();
    let mut last = number(row, 3)?;
    if ![FREE, CROWD].contains(&hex(cell(row, 4)?)?) {
        let alone = place(row, 4)?;
        last = last.max(alone.fence.map_or(0, block_end));
        crowd.push((0, alone));
    }
    let capacity = number(row, 2)? as u32;
    let claims = crowd.into_iter().map(|(_, place)| place).collect();
    let line = Line::restore(capacity, last, claims);
    Ok(Stored {
        key,
        name: hex_bytes(cell(row, 1)?)?,
        was: line.clone(),
        line,
        places,
    })
}

/// The last fence of the block that begins here.
fn block_end(first: Fence) -> u64 {
    first.get().saturating_add(u64::from(FENCE_BLOCK) - 1)
}

fn place(row: &[Option<String>], first: usize) -> Result<Place, Trouble> {
    Ok(Place {
        id: ClaimId::from_u128(hex(cell(row, first)?)?),
        session: SessionId::from_u128(hex(cell(row, first + 1)?)?),
        weight: number(row, first + 2)? as u32,
        lease: number(row, first + 3)?,
        since: number(row, first + 4)?,
        deadline: number(row, first + 5)?,
        fence: match number(row, first + 6)? {
            0 => None,
            fence => Some(Fence::new(fence)),
        },
    })
}

pub(super) fn cell(row: &[Option<String>], at: usize) -> Result<&str, Trouble> {
    let cell = row.get(at).and_then(Option::as_deref);
    cell.ok_or_else(|| unreadable(&format!("column {at} is missing")))
}

pub(super) fn number(row: &[Option<String>], at: usize) -> Result<u64, Trouble> {
    let cell = cell(row, at)?;
    cell.parse()
        .map_err(|_| unreadable(&format!("{cell:?} is no number")))
}

pub(super) fn hex(text: &str) -> Result<u128, Trouble> {
    u128::from_str_radix(text, 16).map_err(|_| unreadable("an id is none"))
}

pub(super) fn hex_bytes(text: &str) -> Result<Vec<u8>, Trouble> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<_> = bytes.collect();
    bytes.ok_or_else(|| unreadable("bytes are none"))
}

fn unreadable(what: &str) -> Trouble {
    let what = format!("the tables hold what Leasehold did not write: {what}");
    Trouble::new(What::Other, what)
}
