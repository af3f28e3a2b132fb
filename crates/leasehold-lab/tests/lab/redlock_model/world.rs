//! Three nodes, two clients that take a majority of them, and a resource that may look at fences.
//!
//! Nodes handle requests one by one and whenever they like, and a client goes on from a majority of answers in a step
//! of its own: what lies between is the network, or a client that stands still.

pub(crate) const NODES: usize = 3;
pub(crate) const MAJORITY: usize = 2;
pub(crate) const LEASE: u8 = 2;

/// How far fences that follow the clock move with each tick; more than there can be grants in one.
const PER_TICK: u8 = 8;

/// The actions that may happen, and the protocol that is followed.
#[derive(Clone)]
pub(crate) struct World {
    /// The last moment.
    pub(crate) end: u8,
    /// How many clocks of nodes may jump ahead by a lease.
    pub(crate) jumps: u8,
    /// How many nodes may start again with nothing.
    pub(crate) restarts: u8,
    /// Whether such a node stays out of votes for a lease.
    pub(crate) abstains: bool,
    /// Whether fences start above the node's clock.
    pub(crate) clocked: bool,
    /// Whether the first node has given out more fences than the others, to tries that came to nothing.
    pub(crate) uneven: bool,
    pub(crate) second: Second,
    pub(crate) gate: Gate,
}

/// The use of the majority's largest fence before the lock is told to be held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// Nothing.
    None,
    /// Any majority stores it.
    Stored,
    /// A majority stores it, each while it still holds for this claim and as one of those the fence was made of.
    Confirmed,
}

/// The resource's check of fences.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// Refuses a smaller number.
    Number,
    /// Refuses a smaller number, and of two equal ones that of the smaller owner.
    Owner,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: u8,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: [Client; 2],
    pub(crate) resource: Resource,
    pub(crate) jumped: u8,
    pub(crate) restarted: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The holder, and until when by this node's clock.
    holder: Option<(usize, u8)>,
    /// The last fence it gave out or was told.
    last: u8,
    /// How far its clock is ahead.
    ahead: u8,
    votes_from: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// When it sent its first request: its trust counts from here.
    began: u8,
    /// Whether the other had been granted before this one began.
    pub(crate) later: bool,
    slots: [Slot; NODES],
    pub(crate) fence: Option<u8>,
    writes: u8,
    under_way: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    New,
    Asking,
    /// It has a majority, and the fence that came of it.
    Telling(u8),
    Holding,
    Over,
}

/// How far a client is with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Slot {
    #[default]
    Fresh,
    Granted(u8),
    /// The fence is stored.
    Stored,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    seen: (u8, usize),
    last: Option<usize>,
    wrote: [bool; 2],
    pub(crate) refused: bool,
    /// It took a write of a holder after one of the holder that came later.
    pub(crate) went_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Begin(usize),
    /// A node handles a request of a client.
    Handle(usize, usize),
    /// A client looks at the answers it has and goes on, or holds.
    Decide(usize),
    Hold(usize),
    Write(usize),
    Arrive(usize),
    Release(usize),
    Jump(usize),
    Restart(usize),
}

impl World {
    pub(crate) fn start(&self) -> State {
        let mut nodes: [Node; NODES] = Default::default();
        nodes[0].last = if self.uneven { 2 } else { 0 };
        State {
            now: 0,
            nodes,
            clients: Default::default(),
            resource: Resource::default(),
            jumped: 0,
            restarted: 0,
        }
    }

    pub(crate) fn trusts(&self, state: &State, who: usize) -> bool {
        let client = &state.clients[who];
        client.phase == Phase::Holding && state.now < client.began + LEASE
    }

    pub(crate) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.now += 1,
            Action::Begin(who) => {
                state.clients[who].later = state.clients[1 - who].fence.is_some();
                state.clients[who].began = state.now;
                state.clients[who].phase = Phase::Asking;
            }
            Action::Handle(who, node) => self.handle(state, who, node),
            Action::Decide(who) => self.decide(state, who),
            Action::Hold(who) => {
                let done = |slot: &&Slot| **slot == Slot::Stored;
                if let Phase::Telling(fence) = state.clients[who].phase
                    && state.clients[who].slots.iter().filter(done).count() >= MAJORITY
                {
                    self.hold(state, who, fence);
                }
            }
            Action::Write(who) => {
                state.clients[who].writes += 1;
                state.clients[who].under_way += 1;
            }
            Action::Arrive(who) => self.arrive(state, who),
            Action::Release(who) => {
                state.clients[who].phase = Phase::Over;
                let mine = |node: &&mut Node| node.holder.is_some_and(|(holder, _)| holder == who);
                state
                    .nodes
                    .iter_mut()
                    .filter(mine)
                    .for_each(|node| node.holder = None);
            }
            Action::Jump(node) => {
                state.jumped += 1;
                state.nodes[node].ahead += LEASE;
            }
            Action::Restart(node) => self.restart(state, node),
        }
    }

    fn restart(&self, state: &mut State, node: usize) {
        state.restarted += 1;
        let ahead = state.nodes[node].ahead;
        let votes_from = if self.abstains {
            state.now + ahead + LEASE
        } else {
            0
        };
        state.nodes[node] = Node {
            ahead,
            votes_from,
            ..Node::default()
        };
    }

    fn handle(&self, state: &mut State, who: usize, at: usize) {
        let (client, node) = (&mut state.clients[who], &mut state.nodes[at]);
        let now = state.now + node.ahead;
        node.holder = node.holder.filter(|(_, until)| *until > now);
        let votes = now >= node.votes_from;
        let slot = &mut client.slots[at];
        *slot = match (client.phase, *slot) {
            (Phase::Asking, Slot::Fresh) if votes && node.holder.is_none() => {
                let floor = if self.clocked { now * PER_TICK } else { 0 };
                node.last = node.last.max(floor) + 1;
                node.holder = Some((who, now + LEASE));
                Slot::Granted(node.last)
            }
            (Phase::Telling(fence), slot) => {
                let counted = matches!(slot, Slot::Granted(_));
                let ours = votes && counted && node.holder.is_some_and(|(holder, _)| holder == who);
                match self.second == Second::Stored || ours {
                    true => {
                        node.last = node.last.max(fence);
                        Slot::Stored
                    }
                    false => slot,
                }
            }
            (_, slot) => slot,
        };
    }

    fn decide(&self, state: &mut State, who: usize) {
        let slots = state.clients[who].slots;
        let counted = slots.iter().filter_map(|slot| match slot {
            Slot::Granted(fence) => Some(*fence),
            _ => None,
        });
        if let Some(fence) = counted.clone().max()
            && counted.count() >= MAJORITY
        {
            match self.second {
                Second::None => self.hold(state, who, fence),
                _ => state.clients[who].phase = Phase::Telling(fence),
            }
        }
    }

    fn hold(&self, state: &mut State, who: usize, fence: u8) {
        let client = &mut state.clients[who];
        client.phase = Phase::Over;
        if state.now < client.began + LEASE {
            client.phase = Phase::Holding;
            client.fence = Some(fence);
        }
    }

    fn arrive(&self, state: &mut State, who: usize) {
        state.clients[who].under_way -= 1;
        let shown = (state.clients[who].fence.unwrap_or(0), who);
        let resource = &mut state.resource;
        let refused = match self.gate {
            Gate::Open => false,
            Gate::Number => shown.0 < resource.seen.0,
            Gate::Owner => shown < resource.seen,
        };
        if refused {
            resource.refused = true;
            return;
        }
        let other = 1 - who;
        let again = resource.last == Some(other) && resource.wrote[who];
        let older = resource.wrote[other] && state.clients[other].later;
        resource.went_back |= again || older;
        resource.seen = resource.seen.max(shown);
        resource.last = Some(who);
        resource.wrote[who] = true;
    }

    pub(crate) fn choices(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::Tick);
        }
        // The first node will do: they are alike.
        if state.jumped < self.jumps {
            actions.push(Action::Jump(0));
        }
        if state.restarted < self.restarts {
            actions.push(Action::Restart(0));
        }
        for who in 0..2 {
            self.moves(state, who, actions);
        }
    }

    fn moves(&self, state: &State, who: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[who];
        let slots =
            |wanted: fn(&Slot) -> bool| (0..NODES).filter(move |at| wanted(&client.slots[*at]));
        match client.phase {
            // The first client begins first: they are alike.
            Phase::New if who == 0 || state.clients[0].phase != Phase::New => {
                actions.push(Action::Begin(who))
            }
            Phase::Asking => {
                actions
                    .extend(slots(|slot| *slot == Slot::Fresh).map(|at| Action::Handle(who, at)));
                actions.push(Action::Decide(who));
            }
            Phase::Telling(_) => {
                let all = |slot: &Slot| *slot != Slot::Stored;
                let counted = |slot: &Slot| matches!(slot, Slot::Granted(_));
                let wanted = if self.second == Second::Stored {
                    all
                } else {
                    counted
                };
                actions.extend(slots(wanted).map(|at| Action::Handle(who, at)));
                actions.push(Action::Hold(who));
            }
            Phase::Holding => {
                if client.writes < 2 - who as u8 && self.trusts(state, who) {
                    actions.push(Action::Write(who));
                }
                // A holder releases after its writes were answered: late ones are those of a holder that stood still.
                if client.under_way == 0 {
                    actions.push(Action::Release(who));
                }
            }
            Phase::New | Phase::Over => {}
        }
        if client.under_way > 0 {
            actions.push(Action::Arrive(who));
        }
    }
}
