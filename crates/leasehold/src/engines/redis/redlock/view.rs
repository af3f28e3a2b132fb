//! `inspect`: the state that a majority of nodes agrees on.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::error::Trouble;
use super::super::inspect;
use super::super::words::who;
use super::calls::Said;
use super::node::{Answers, Node};
use super::nodes::Nodes;
use super::script::{Run, Shown, shown};
use crate::claim::{ById, ClaimId, Mode};
use crate::engine::{ClaimView, LineView};
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// How many names are looked at in one call.
const AT_ONCE: usize = 200;

impl Nodes {
    /// The lines of these names that are in use.
    pub(super) async fn lines(&self, names: &[Name]) -> Result<Vec<LineView>> {
        let keys = self.config.keys();
        let runs: Vec<_> = names
            .chunks(AT_ONCE)
            .map(|names| {
                names
                    .iter()
                    .fold(Run::new("look"), |run, name| run.look(keys, name))
            })
            .collect();
        // Every node is waited for: the answers of a few may be old.
        let said = self.ask(runs, self.config.unhurried(), |_| false).await;
        let answered: Vec<_> = said.iter().flatten().flatten().collect();
        if answered.len() < self.majority() {
            return Err(self.short(&said, Step::Inspect));
        }
        let mut views = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let shown = answered.iter().map(|answers| shown(answers[at].clone()));
            let shown: std::result::Result<Vec<_>, Trouble> = shown.collect();
            let shown = shown.map_err(|trouble| trouble.at(Step::Inspect).on("redlock"))?;
            views.extend(self.line(name, shown));
        }
        Ok(views)
    }

    fn line(&self, name: &Name, nodes: Vec<Vec<Shown>>) -> Option<LineView> {
        // A node that did not answer may have it as well.
        let silent = self.len() - nodes.len();
        let mut claims = ById::<ClaimId, (usize, Shown)>::default();
        for one in nodes.into_iter().flatten() {
            let (holding, claim) = claims.entry(one.id).or_insert_with(|| (0, one.clone()));
            *holding += usize::from(one.fence.is_some());
            claim.fence = claim.fence.max(one.fence);
            claim.since = claim.since.min(one.since);
            claim.until = claim.until.max(one.until);
            claim.lease = claim.lease.max(one.lease);
        }
        let mut views: Vec<_> = claims
            .into_values()
            .map(|(holding, claim)| {
                let holds = holding > 0 && holding + silent >= self.majority();
                let fence = claim
                    .fence
                    .filter(|fence| holds && *fence > 0)
                    .map(Fence::new);
                let (since, until) = (time(claim.since), time(claim.until));
                let view = ClaimView::new(fence, Mode::Mutex, who(&claim.who), since, until);
                let view = match claim.lease {
                    0 => view,
                    lease => view.lease(Duration::from_micros(lease)),
                };
                view.held_by_fence()
            })
            .collect();
        views.sort_by_key(|claim| claim.since);
        (!views.is_empty()).then(|| LineView::new(name.clone(), views))
    }

    /// Every name that some node has something of.
    pub(super) async fn names(&self) -> Result<Vec<Name>> {
        let mut names = BTreeSet::new();
        let mut said: Said<Answers> = Vec::new();
        for node in self.all() {
            let found = tokio::time::timeout(self.config.unhurried(), node_names(self, node)).await;
            said.push(found.ok().map(|found| {
                found.map(|found| {
                    names.extend(found);
                    Vec::new()
                })
            }));
        }
        let answered = said.iter().flatten().flatten().count();
        match answered >= self.majority() {
            true => Ok(names.into_iter().collect()),
            false => Err(self.short(&said, Step::Inspect)),
        }
    }
}

async fn node_names(nodes: &Nodes, node: &Node) -> std::result::Result<BTreeSet<Name>, Trouble> {
    let keys = nodes.config.keys();
    node.link().ready().await?;
    inspect::names(node.link(), &keys.pattern(), |key| keys.name(key)).await
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
