//! A message says that a claim was evicted. Every client with a right to the channels can write one, so the nodes are asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::error::Trouble;
use super::calls::Said;
use super::entry::Entry;
use super::node::Answers;
use super::script::{Run, shown};
use super::session::RedlockSession;
use crate::engine::{Ended, Event};

/// Looks until every message is looked into: an eviction reaches one node after the other, and the last message counts.
#[expect(
    clippy::disallowed_methods,
    reason = "the engine's own event loop: a message must not wait for an answer"
)]
pub(super) fn look(session: Arc<RedlockSession>, entry: Arc<Entry>, why: Ended) {
    drop(tokio::spawn(async move {
        loop {
            let seen = entry.evictions.load(Ordering::Acquire);
            if is_gone(&session, &entry).await {
                session.forget(entry.claim.id);
                session.inbox.deliver(Event::Ended(entry.claim.id, why));
                return;
            }
            let all =
                entry
                    .evictions
                    .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire);
            if all.is_ok() {
                return;
            }
        }
    }));
}

/// Whether too few nodes have the claim to be a majority. A silent node may have it. A look changes nothing: a heartbeat
/// would take the node back that was just evicted.
async fn is_gone(session: &RedlockSession, entry: &Entry) -> bool {
    let nodes = &session.nodes;
    let has = |answers: &Answers| -> Result<bool, Trouble> {
        let claims = shown(answers.first().cloned().unwrap_or_default())?;
        let holds = |fence: Option<u64>| fence.is_some();
        Ok(claims
            .iter()
            .any(|claim| claim.id == entry.claim.id && holds(claim.fence)))
    };
    let count = |said: &Said<Answers>, wanted: bool| {
        let answered = said.iter().flatten().flatten();
        answered
            .filter(|answers| has(answers).is_ok_and(|has| has == wanted))
            .count()
    };
    let run = Run::new("look").look(nodes.config.keys(), &entry.claim.name);
    let patience = nodes.config.patience(entry.claim.lease);
    let said = nodes.ask(vec![run], patience, |said| {
        count(said, true) >= nodes.majority() || nodes.hopeless(count(said, false))
    });
    nodes.hopeless(count(&said.await, false))
}
