//! What is asked of the database, and how it is done on one connection.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::crowd;
use super::evict::Eviction;
use super::post;
use super::rows::{self, Key, Lock, Stored, cell, number};
use super::tables::Tables;
use super::wire::{Rows, Trouble, Wire};
use super::world::World;
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::clock::Micros;
use crate::engine::LineView;
use crate::error::Step;
use crate::fence::{FENCE_BLOCK, Fence};
use crate::identity::Identity;
use crate::line::{Change, Held, Line, Moment, Refusal, Release, Standing, What};
use crate::name::Name;
use crate::sync::Shared;

/// One operation. Done twice it does what it does once.
#[derive(Debug)]
pub(super) enum Op {
    Open(SessionId, Identity),
    Claim(Claim, Owner),
    /// Says that claims are alive, on any number of lines; tells of each by its index.
    Beat(Vec<Arc<Claim>>, SessionId, Told),
    /// The same for claims of one line, which is waited for.
    BeatLine(Vec<Arc<Claim>>, SessionId),
    /// Looks where one claim is.
    See(Key, ClaimId),
    Release(Claim, u32, Owner),
    Close(SessionId, Vec<Name>),
    Inspect(Option<Name>),
    Evict(Eviction),
    /// Removes what is long idle.
    Clean,
}

/// Whose claim it is.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) session: SessionId,
    pub(super) book: Book,
    /// Whether the session had not asked for the claim before.
    pub(super) fresh: bool,
}

/// The names that the claims of a session may be in line for; None once it is closed.
pub(super) type Book = Arc<Shared<Option<ById<ClaimId, Name>>>>;

/// Takes the answers of a heartbeat; closed once no caller waits for them.
pub(super) type Told = mpsc::UnboundedSender<(usize, Standing)>;

/// What an operation answers.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Standings(Vec<Standing>),
    Refused(Refusal),
    Released(Release),
    Evicted(u32),
    /// One more than the fence of a claim, 1 if it waits; nothing if it is in no line.
    Seen(Option<u64>),
    Lines(Vec<LineView>),
}

impl Op {
    /// The step that errors name.
    pub(super) const fn step(&self) -> Step {
        match self {
            Self::Open(..) => Step::Open,
            Self::Claim(..) => Step::Claim,
            Self::Beat(..) | Self::BeatLine(..) | Self::Clean => Step::Heartbeat,
            Self::Release(..) => Step::Release,
            Self::Close(..) => Step::Close,
            Self::Inspect(..) => Step::Inspect,
            Self::Evict(..) => Step::Evict,
            Self::See(..) => Step::Wait,
        }
    }

    /// Its turn has come, and it is about to be done: takes note of a claim. The answer if there is nothing to do.
    pub(super) fn begin(&mut self, world: &World) -> Option<crate::error::Result<Answer>> {
        match self {
            Self::Claim(claim, owner) => {
                let mut book = owner.book.lock();
                let Some(names) = &mut *book else {
                    return Some(Err(world.closed(Step::Claim)));
                };
                owner.fresh = names.insert(claim.id, claim.name.clone()).is_none();
                world.watch.add(claim.id, Key::of(&claim.name));
                None
            }
            Self::Release(claim, _, owner) => {
                let asked = |names: &ById<_, _>| names.contains_key(&claim.id);
                let asked = owner.book.lock().as_ref().is_some_and(asked);
                (!asked).then_some(Ok(Answer::Released(Release::Gone)))
            }
            _ => None,
        }
    }

    /// It failed, and nothing was done: a new claim is in no line.
    pub(super) fn forget(&self, world: &World) {
        if let Self::Claim(claim, owner) = self
            && owner.fresh
        {
            world.watch.gone(claim.id);
            let _ = owner
                .book
                .lock()
                .as_mut()
                .map(|names| names.remove(&claim.id));
        }
    }

    /// What takes a claim back that no caller waits for any more, if it may be in the line because of this.
    pub(super) fn undo(self, answer: &crate::error::Result<Answer>) -> Option<Self> {
        let Self::Claim(claim, owner) = self else {
            return None;
        };
        let there = match answer {
            Ok(Answer::Standings(standings)) => !matches!(standings[..], [Standing::Busy]),
            Ok(_) => false,
            Err(error) => error.may_have_happened(),
        };
        (there && owner.fresh).then(|| Self::Release(claim, 0, owner))
    }

    /// Does it. `again` if it may have been done before, and the answer was lost.
    pub(super) async fn perform(
        &self,
        world: &World,
        wire: &mut Wire,
        again: bool,
    ) -> Result<Answer, Trouble> {
        match self {
            Self::Open(session, who) => {
                let (open, values) = world.quick().open(*session, who, world.bound_now());
                let _ = wire.quick(open, &values).await?;
                Ok(Answer::Done)
            }
            Self::Claim(claim, owner) => {
                let key = Key::of(&claim.name);
                let joins = claim.waits && owner.fresh && !again && crowd::likely(world, claim);
                let taken = match joins {
                    true => crowd::join(world, wire, claim, owner).await?,
                    false => take(world, wire, claim, owner).await?,
                };
                if let Some(standing) = taken {
                    return Ok(Answer::Standings(vec![standing]));
                }
                world.known.remove(key);
                world.crowded.remove(key);
                let answer = carefully(self, world, wire, &[key]).await?;
                if let Answer::Standings(standings) = &answer
                    && matches!(standings[..], [Standing::Waiting { .. }])
                {
                    world.crowded.add(key);
                }
                Ok(answer)
            }
            Self::Release(claim, used, _) => {
                let key = Key::of(&claim.name);
                let left = match !again && crowd::likely(world, claim) {
                    true => crowd::leave(world, wire, claim, *used).await?,
                    false => {
                        let (quick, values) =
                            world.quick().release(claim, *used, world.bound_now());
                        wire.quick(quick, &values).await?.is_some()
                    }
                };
                if left {
                    return Ok(Answer::Released(Release::Released));
                }
                world.crowded.remove(key);
                carefully(self, world, wire, &[key]).await
            }
            Self::Beat(claims, session, told) => {
                super::beat::beat(world, wire, claims, *session, told).await
            }
            Self::BeatLine(claims, ..) => {
                let keys: Vec<_> = claims.iter().map(|claim| Key::of(&claim.name)).collect();
                carefully(self, world, wire, &keys).await
            }
            Self::See(key, claim) => {
                let (look, values) = world.quick().see(*key, *claim);
                wire.quick(look, &values).await.map(Answer::Seen)
            }
            Self::Close(session, names) if names.is_empty() => {
                let id = world.tables().dialect.id(session.as_u128());
                let forget = format!("DELETE FROM {} WHERE id = {id}", world.tables().session);
                wire.run(&forget).await.map(|_| Answer::Done)
            }
            Self::Close(_, names) => {
                let keys: Vec<_> = names.iter().map(Key::of).collect();
                carefully(self, world, wire, &keys).await
            }
            Self::Evict(eviction) => {
                let before = match again {
                    true => eviction.done_before(world, wire).await?,
                    false => {
                        eviction.begin();
                        0
                    }
                };
                let keys = [Key::of(&eviction.name)];
                match carefully(self, world, wire, &keys).await? {
                    Answer::Evicted(now) => Ok(Answer::Evicted(before + now)),
                    other => Ok(other),
                }
            }
            Self::Inspect(name) => super::view::look(world, wire, name.as_ref()).await,
            Self::Clean => super::clean::clean(world, wire).await,
        }
    }

    /// The rule, on the lines that were read and locked.
    fn apply(&self, lines: &mut [Stored], at: Moment) -> (Answer, Vec<Change>) {
        let mut changes = Vec::new();
        let answer = match self {
            Self::Claim(claim, owner) => match find(lines, &claim.name) {
                // Cleaned away since the quick way found it busy: the caller asks again.
                None => Answer::Standings(Vec::new()),
                Some(stored) => {
                    let (answer, told) = stored.line.claim(&claim.ask(owner.session), at);
                    changes = told;
                    answer.map_or_else(Answer::Refused, |standing| {
                        Answer::Standings(vec![standing])
                    })
                }
            },
            Self::Release(claim, used, _) => Answer::Released(match find(lines, &claim.name) {
                None => Release::Gone,
                Some(stored) => {
                    let (release, told) = stored.line.release(claim.id, *used, at);
                    changes = told;
                    release
                }
            }),
            Self::BeatLine(claims, ..) => {
                for claim in claims {
                    if let Some(stored) = find(lines, &claim.name) {
                        changes.extend(stored.line.heartbeat(claim.id, at).1);
                    }
                }
                // As it is when all of them were heard.
                let standings = claims.iter().map(|claim| {
                    let stored = find(lines, &claim.name);
                    stored.map_or(Standing::Gone, |stored| stored.line.standing(claim.id, at))
                });
                Answer::Standings(standings.collect())
            }
            Self::Close(session, _) => {
                for stored in lines {
                    let dead = stored.line.sweep_dead(at, |id| id == *session);
                    changes.extend(dead);
                }
                changes.retain(|change| change.session != *session);
                Answer::Done
            }
            Self::Evict(eviction) => {
                changes = find(lines, &eviction.name)
                    .map_or_else(Vec::new, |stored| eviction.apply(&mut stored.line, at));
                let evicted = changes.iter().filter(|change| change.what == What::Evicted);
                Answer::Evicted(u32::try_from(evicted.count()).unwrap_or(u32::MAX))
            }
            Self::Open(..) | Self::Beat(..) | Self::See(..) | Self::Inspect(..) | Self::Clean => {
                Answer::Done
            }
        };
        (answer, changes)
    }

    /// What belongs to the same transaction besides the lines.
    fn aside(&self, tables: &Tables, was: &[(Key, Line)], now: Micros) -> Vec<String> {
        match self {
            Self::BeatLine(_, session) => vec![tables.seen(*session, &now.to_string())],
            Self::Evict(eviction) => eviction.trace(tables, was, now),
            _ => Vec::new(),
        }
    }
}

/// Takes a line that is idle; none if it is not.
async fn take(
    world: &World,
    wire: &mut Wire,
    claim: &Claim,
    owner: &Owner,
) -> Result<Option<Standing>, Trouble> {
    let (key, now) = (Key::of(&claim.name), world.bound_now());
    let known = world.known.has(key);
    let (quick, values) = world.quick().claim(claim, owner.session, known, now);
    let Some(fence) = wire.quick(quick, &values).await? else {
        return Ok(None);
    };
    world.known.add(key);
    Ok(Some(Standing::Held(Held {
        fence: Fence::new(fence),
        block: FENCE_BLOCK,
        wanted: false,
    })))
}

pub(super) fn find<'a>(lines: &'a mut [Stored], name: &Name) -> Option<&'a mut Stored> {
    let key = Key::of(name);
    lines.iter_mut().find(|stored| stored.key == key)
}

/// The transaction: locks the lines in the order of their keys, applies the rule, writes what changed and tells those
/// whom it concerns. Two round trips.
pub(super) async fn carefully(
    op: &Op,
    world: &World,
    wire: &mut Wire,
    keys: &[Key],
) -> Result<Answer, Trouble> {
    let (tables, mut keys) = (world.tables(), keys.to_vec());
    keys.sort_unstable();
    keys.dedup();
    let begin = match op {
        Op::BeatLine(..) => tables.dialect.begin_briefly(),
        _ => tables.dialect.begin(),
    };
    let mut packet = vec![begin.to_owned()];
    packet.extend(tables.read(&keys, Lock::Wait));
    packet.push(format!("SELECT {}", world.now()));
    let rows = wire.run(&packet.join("; ")).await?;
    let (mut stored, now) = match locked(&rows) {
        Ok(locked) => locked,
        Err(trouble) => {
            drop(wire.run("ROLLBACK").await);
            return Err(trouble);
        }
    };
    let was: Vec<_> = match op {
        Op::Evict(..) => stored.iter().map(|s| (s.key, s.line.clone())).collect(),
        _ => Vec::new(),
    };
    let (answer, changes) = op.apply(&mut stored, world.moment(now));
    let mut packet = Vec::new();
    for line in &stored {
        packet.extend(tables.write(line, now));
    }
    packet.extend(op.aside(tables, &was, now));
    let evicted = match op {
        Op::Evict(eviction) => Some(&eviction.ended),
        _ => None,
    };
    packet.extend(post::send(world, &changes, evicted, now));
    packet.push("COMMIT".to_owned());
    let _ = wire.run(&packet.join("; ")).await?;
    world.tell(&changes, evicted);
    Ok(answer)
}

fn locked(rows: &[Rows]) -> Result<(Vec<Stored>, Micros), Trouble> {
    let [.., lines, claims, clock] = rows else {
        return Err(Trouble::new(super::wire::What::Other, "rows are missing"));
    };
    let now = number(clock.first().map_or(&[][..], Vec::as_slice), 0)?;
    let lines: Result<_, _> = rows::lines(lines, claims).into_values().collect();
    Ok((lines?, now))
}

impl Tables {
    /// Once an hour a session is noted to be there.
    pub(super) fn seen(&self, session: SessionId, now: &str) -> String {
        format!(
            "UPDATE {} SET seen = {now} WHERE id = {} AND seen < {now} - 3600000000",
            self.session,
            self.dialect.id(session.as_u128())
        )
    }
}

/// The text of a cell of hexadecimal digits.
pub(super) fn text(row: &[Option<String>], at: usize) -> Result<String, Trouble> {
    let bytes = rows::hex_bytes(cell(row, at)?)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
