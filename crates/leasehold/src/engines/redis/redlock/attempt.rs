//! One try for a majority, in two phases.
//!
//! First every node that grants gives a fence, and the largest of a majority is the one. Then a majority stores it,
//! each only while it still holds for this claim and only if its own fence was among those looked at. Of two grants
//! one then came first on some node of both majorities, and that node knew its fence before it gave out the other's:
//! no fence is had twice, and a later holder has a larger one, also when a node's clock jumped. The model in
//! `redlock_model` in the tests of the lab is this.

use std::time::Duration;

use super::calls::Said;
use super::nodes::{Nodes, count, count_noes};
use super::script::{Asker, Run, Vote};
use crate::claim::Claim;
use crate::engine::Held;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::{FENCE_BLOCK, Fence};

pub(super) enum Attempt {
    Held(Held),
    /// No majority; asking again may be worth it after about so long.
    Busy(Duration),
}

/// Two claims that split the nodes between them should not meet again.
const SPLIT: Duration = Duration::from_millis(30);
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(250);

impl Nodes {
    /// Tries for a majority; gives back what did not become one.
    pub(super) async fn attempt(&self, claim: &Claim, asker: &Asker) -> Result<Attempt> {
        let yes = |vote: &Vote| matches!(vote, Vote::Yes(_));
        let voting = |vote: &Vote| matches!(vote, Vote::Yes(_) | Vote::Busy { .. });
        let run = Run::claim(self.config.keys(), claim, asker);
        let votes = self.votes(run, self.config.patience(claim.lease), |said| {
            // A no is not enough: "busy" and "too few nodes answer" are different answers.
            let told =
                count(said, voting) >= self.majority() || self.hopeless(count_noes(said, voting));
            count(said, yes) >= self.majority() || (told && self.hopeless(count_noes(said, yes)))
        });
        let votes = votes.await;
        let tried = match count(&votes, yes) >= self.majority() {
            true => self.confirm(claim, &votes).await,
            false if count(&votes, voting) >= self.majority() => Ok(None),
            false => Err(self.no_vote(&votes)),
        };
        if let Ok(Some(held)) = tried {
            return Ok(Attempt::Held(held));
        }
        self.tell(vec![Run::give_way(self.config.keys(), claim, asker)])
            .await;
        tried.map(|_| Attempt::Busy(again(claim, &votes)))
    }

    /// None if a majority answers and the claim is gone from some of it. An outage is an error: it says nothing of other
    /// holders, and what the nodes gave before it they may still have.
    async fn confirm(&self, claim: &Claim, votes: &Said<Vote>) -> Result<Option<Held>> {
        let fences: Vec<_> = votes
            .iter()
            .map(|said| match said {
                Some(Ok(Vote::Yes(fence))) => Some(*fence),
                _ => None,
            })
            .collect();
        let Some(fence) = fences.iter().flatten().max().copied() else {
            return Ok(None);
        };
        let held = |vote: &Vote| matches!(vote, Vote::Held { .. });
        let told = |vote: &Vote| matches!(vote, Vote::Held { .. } | Vote::Gone);
        let run = Run::confirm(self.config.keys(), claim, fence);
        let said = self.votes(run, self.config.patience(claim.lease), |said| {
            let said = counted(said, &fences);
            let others = fences.len() - said.len();
            let known = count(&said, told) >= self.majority()
                || self.hopeless(others + count_noes(&said, told));
            let lost = self.hopeless(others + count_noes(&said, held));
            count(&said, held) >= self.majority() || (known && lost)
        });
        let said = counted(&said.await, &fences);
        let wanted = count(&said, |vote| *vote == Vote::Held { wanted: true }) > 0;
        match count(&said, held) >= self.majority() {
            true => Ok(Some(Held {
                fence,
                block: FENCE_BLOCK,
                wanted,
            })),
            false if count(&said, told) >= self.majority() => Ok(None),
            false => Err(self.short(&said, Step::Claim).perhaps()),
        }
    }

    fn no_vote(&self, votes: &Said<Vote>) -> Error {
        let left = votes
            .iter()
            .flatten()
            .flatten()
            .filter_map(|vote| match vote {
                Vote::New(left) => Some(*left),
                _ => None,
            });
        match left.max() {
            None => self.short(votes, Step::Claim),
            Some(left) => {
                let what = format!(
                    "too few nodes vote: some started a short time ago, and vote within {left:?}"
                );
                let error = Error::new(ErrorKind::Unavailable, Step::Claim, what);
                error.on("redlock").perhaps()
            }
        }
    }
}

/// The answers that count: of nodes whose own fence was looked at. The other nodes are told as well, for clients that look
/// at them.
fn counted(said: &Said<Vote>, fences: &[Option<Fence>]) -> Said<Vote> {
    let among = said.iter().zip(fences).filter(|(_, fence)| fence.is_some());
    among.map(|(said, _)| said.clone()).collect()
}

/// When to ask again: after the end of the holder's lease, or for a release whose message was lost.
fn again(claim: &Claim, votes: &Said<Vote>) -> Duration {
    let usual = (claim.lease / 10).clamp(SHORTEST, LONGEST);
    let busy = votes
        .iter()
        .flatten()
        .flatten()
        .filter_map(|vote| match vote {
            Vote::Busy { left, settled } => Some((*left, *settled)),
            _ => None,
        });
    match busy.clone().any(|(_, settled)| settled) {
        true => busy
            .map(|(left, _)| left)
            .min()
            .unwrap_or(usual)
            .clamp(SHORTEST, usual),
        false => SPLIT.min(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_not_looked_at_do_not_count() {
        let held = || Some(Ok(Vote::Held { wanted: false }));
        let fences = [Some(Fence::new(7)), None, Some(Fence::new(9)), None, None];
        let said = vec![held(), held(), None, held(), held()];
        assert_eq!(counted(&said, &fences), vec![held(), None]);
    }
}
