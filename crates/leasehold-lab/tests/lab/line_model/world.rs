//! A line, a few clients, a network that delays, loses and repeats, and a resource that checks fences.

use std::collections::BTreeSet;

use leasehold::engine::{ClaimId, Held, Mode, SessionId, Standing};
use leasehold::line::{Ask, Change, Line, Moment, What};

/// The actions that may happen, and how often.
#[derive(Clone)]
pub(crate) struct World {
    /// One claim per client.
    pub(crate) modes: Vec<Mode>,
    pub(crate) trust: Trust,
    /// The last moment.
    pub(crate) end: u64,
    /// How many heartbeats each client may send.
    pub(crate) beats: u8,
    /// How many messages may be under way; further ones are lost.
    pub(crate) room: usize,
    /// Whether messages may be lost, and clients fall silent.
    pub(crate) faults: bool,
    /// How many messages may be delivered twice. Without a bound a repeated claim joins for ever.
    pub(crate) repeats: u8,
    pub(crate) evicts: bool,
    /// Whether holders write to the resource.
    pub(crate) writes: bool,
    /// Whether the resource looks at fences.
    pub(crate) gate: bool,
}

pub(crate) const LEASE: u64 = 2;

/// Until when a client trusts its grant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// A lease after the last acknowledged word was sent: ours.
    Sending,
    /// A lease after the acknowledgement came.
    Reply,
    /// A lease after it was told of the grant.
    Grant,
    /// For ever.
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) line: Line,
    pub(crate) clients: Vec<Client>,
    pub(crate) net: BTreeSet<Message>,
    pub(crate) resource: Resource,
    pub(crate) repeated: u8,
    pub(crate) evicted: bool,
    /// The first fence of every grant, as they were made.
    pub(crate) grants: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The moment from which its trust counts, once a word was acknowledged.
    pub(crate) said: Option<u64>,
    pub(crate) fence: Option<u64>,
    early: Option<u64>,
    /// It learnt of its grant by a push.
    pub(crate) pushed: bool,
    /// It asked to read only.
    pub(crate) downgraded: bool,
    beats: u8,
    wrote: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    New,
    Asking,
    /// It found itself lost, or released.
    Over,
    /// It says nothing any more.
    Silent,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    seen: u64,
    /// How many grants there were when the youngest writer's was made.
    youngest: usize,
    pub(crate) refused: bool,
    /// It took a write of a grant that was older than one before.
    pub(crate) went_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Word { who: usize, sent: u64, word: Word },
    Reply { who: usize, sent: u64, said: Said },
    Push { who: usize, fence: u64 },
    Write { fence: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Claim,
    Downgrade,
    Heartbeat,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Said {
    Held(u64),
    Waiting,
    Gone,
}

impl World {
    pub(crate) fn start(&self) -> State {
        State {
            now: 0,
            line: Line::new(0),
            clients: vec![Client::default(); self.modes.len()],
            net: BTreeSet::new(),
            resource: Resource::default(),
            repeated: 0,
            evicted: false,
            grants: Vec::new(),
        }
    }

    /// Whether a client would act as a holder now.
    pub(crate) fn trusts(&self, state: &State, who: usize) -> bool {
        let client = &state.clients[who];
        let in_time = client.said.is_some_and(|said| state.now < said + LEASE);
        let in_time = in_time || self.trust == Trust::Always;
        client.phase == Phase::Asking && client.fence.is_some() && in_time
    }

    /// The weight that a client believes to hold.
    pub(crate) fn weight(&self, state: &State, who: usize) -> u64 {
        match state.clients[who].downgraded {
            true => u64::from(Mode::Read.weight()),
            false => u64::from(self.modes[who].weight()),
        }
    }

    /// The words a client may say now.
    pub(crate) fn words(&self, state: &State, who: usize) -> Vec<Word> {
        let client = &state.clients[who];
        let mut words = Vec::new();
        match client.phase {
            // Which of them sends first is all the same: the network delivers in any order.
            Phase::New if who == 0 || state.clients[who - 1].phase != Phase::New => {
                words.push(Word::Claim);
            }
            Phase::Asking if client.said.is_some() => {
                if client.beats < self.beats {
                    words.push(Word::Heartbeat);
                }
                // A session sends a release after its other words; only faults mix them up.
                let under_way = state.net.iter().any(|message| message.is_word_of(who));
                if self.trusts(state, who) && (self.faults || !under_way) {
                    words.push(Word::Release);
                }
                let writes = self.modes[who] == Mode::Write && !client.downgraded;
                if self.trusts(state, who) && writes {
                    words.push(Word::Downgrade);
                }
            }
            _ => {}
        }
        words
    }

    pub(crate) fn may_write(&self, state: &State, who: usize) -> bool {
        self.writes && self.trusts(state, who) && !state.clients[who].wrote
    }

    pub(crate) fn say(&self, state: &mut State, who: usize, word: Word) {
        let client = &mut state.clients[who];
        match word {
            Word::Claim => client.phase = Phase::Asking,
            Word::Heartbeat => client.beats += 1,
            // A client gives up its right to write before it says so.
            Word::Downgrade => client.downgraded = true,
            Word::Release => client.phase = Phase::Over,
        }
        let sent = state.now;
        self.send(state, Message::Word { who, sent, word });
    }

    pub(crate) fn write(&self, state: &mut State, who: usize) {
        let client = &mut state.clients[who];
        client.wrote = true;
        if let Some(fence) = client.fence {
            self.send(state, Message::Write { fence });
        }
    }

    pub(crate) fn deliver(&self, state: &mut State, message: Message) {
        match message {
            Message::Word { who, sent, word } => self.serve(state, who, sent, word),
            Message::Reply { who, sent, said } => self.hear(state, who, sent, said),
            Message::Push { who, fence } => {
                let client = &mut state.clients[who];
                if client.phase != Phase::Asking || client.fence.is_some() {
                    return;
                }
                if client.said.is_none() {
                    // It overtook the reply to the claim, which tells from when to count.
                    client.early = Some(fence);
                    return;
                }
                if self.trust == Trust::Grant {
                    client.said = Some(state.now);
                }
                client.pushed = true;
                self.take(state, who, fence);
            }
            Message::Write { fence } => self.written(state, fence),
        }
    }

    pub(crate) fn sweep(&self, state: &mut State) {
        let before = held(&state.line);
        let changes = state.line.sweep(moment(state));
        self.tell(state, &before, changes);
    }

    pub(crate) fn evict(&self, state: &mut State) {
        let before = held(&state.line);
        state.evicted = true;
        let changes = state.line.evict(None, moment(state));
        self.tell(state, &before, changes);
    }

    fn serve(&self, state: &mut State, who: usize, sent: u64, word: Word) {
        let (at, before) = (moment(state), held(&state.line));
        let mode = match word {
            Word::Downgrade => Mode::Read,
            _ => self.modes[who],
        };
        let (standing, changes) = match word {
            Word::Claim | Word::Downgrade => {
                let (answer, changes) = state.line.claim(&ask(who, mode), at);
                (answer.unwrap_or(Standing::Gone), changes)
            }
            Word::Heartbeat => state.line.heartbeat(id(who), at),
            Word::Release => (Standing::Gone, state.line.release(id(who), 1, at).1),
        };
        self.tell(state, &before, changes);
        let said = match standing {
            Standing::Held(Held { fence, .. }) => Said::Held(fence.get()),
            Standing::Waiting { .. } => Said::Waiting,
            _ => Said::Gone,
        };
        if state.clients[who].phase == Phase::Asking {
            self.send(state, Message::Reply { who, sent, said });
        }
    }

    /// Notes the grants that were made, and pushes those that no client asked for.
    fn tell(&self, state: &mut State, before: &[(ClaimId, u64)], changes: Vec<Change>) {
        let now = held(&state.line).into_iter();
        let new = now.filter(|grant| !before.contains(grant));
        state.grants.extend(new.map(|(_, fence)| fence));
        for change in changes {
            let who = change.claim.as_u128() as usize;
            if let What::Granted(held) = change.what
                && state.clients[who].phase == Phase::Asking
            {
                let fence = held.fence.get();
                self.send(state, Message::Push { who, fence });
            }
        }
    }

    fn hear(&self, state: &mut State, who: usize, sent: u64, said: Said) {
        let trusted = self.trusts(state, who);
        let now = state.now;
        let client = &mut state.clients[who];
        let lost = client.fence.is_some() && !trusted;
        if client.phase != Phase::Asking || lost {
            return;
        }
        let from = match self.trust {
            Trust::Reply => now,
            _ => sent,
        };
        match said {
            Said::Gone => client.phase = Phase::Over,
            // Overtaken by the push of its grant; what ended will not be renewed.
            Said::Waiting if client.fence.is_some() => {}
            Said::Waiting => {
                client.said = client.said.max(Some(from));
                if let Some(fence) = client.early.take() {
                    self.take(state, who, fence);
                }
            }
            Said::Held(fence) => {
                client.said = client.said.max(Some(from));
                if client.fence.is_none() {
                    self.take(state, who, fence);
                }
            }
        }
    }

    /// A client learns that it holds; too late, and it is lost.
    fn take(&self, state: &mut State, who: usize, fence: u64) {
        state.clients[who].fence = Some(fence);
        if !self.trusts(state, who) {
            state.clients[who].phase = Phase::Over;
        }
    }

    fn written(&self, state: &mut State, fence: u64) {
        let resource = &mut state.resource;
        if self.gate && fence < resource.seen {
            resource.refused = true;
            return;
        }
        resource.seen = resource.seen.max(fence);
        let made = state.grants.iter().rposition(|first| *first == fence);
        let made = made.unwrap_or(0);
        resource.went_back |= made < resource.youngest;
        resource.youngest = resource.youngest.max(made);
    }

    /// Forgets what can make no difference any more, so that fewer states are to be looked at.
    pub(crate) fn forget(&self, state: &mut State) {
        for client in &mut state.clients {
            if matches!(client.phase, Phase::Over | Phase::Silent) {
                let fence = client.fence;
                let phase = client.phase;
                *client = Client::default();
                (client.phase, client.fence) = (phase, fence.map(|_| 0));
            }
        }
        let clients = &state.clients;
        state.net.retain(|message| match message {
            Message::Reply { who, .. } | Message::Push { who, .. } => {
                clients[*who].phase == Phase::Asking
            }
            _ => true,
        });
        if !self.writes && state.grants.len() > 2 {
            let _ = state.grants.remove(0);
        }
    }

    fn send(&self, state: &mut State, message: Message) {
        if state.net.len() < self.room {
            let _ = state.net.insert(message);
        }
    }
}

impl Message {
    fn is_word_of(&self, client: usize) -> bool {
        matches!(self, Self::Word { who, .. } if *who == client)
    }
}

fn held(line: &Line) -> Vec<(ClaimId, u64)> {
    let holders = line.holders();
    let held = holders.filter_map(|place| Some((place.id, place.fence?.get())));
    held.collect()
}

fn moment(state: &State) -> Moment {
    Moment {
        now: state.now,
        floor: 0,
    }
}

pub(crate) fn id(who: usize) -> ClaimId {
    ClaimId::from_u128(who as u128)
}

fn ask(who: usize, mode: Mode) -> Ask {
    Ask {
        id: id(who),
        session: SessionId::from_u128(who as u128),
        mode,
        lease: LEASE,
        waits: true,
    }
}
