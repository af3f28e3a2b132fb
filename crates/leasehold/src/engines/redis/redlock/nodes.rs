//! All nodes, and what a majority of them says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::client::Call as Entry;
use super::super::error::Trouble;
use super::calls::{Call, Calls, Said};
use super::config::Config;
use super::node::{Answers, Node};
use super::post::Post;
use super::script::{Run, Vote, vote};
use crate::error::{Error, ErrorKind, Step};

/// Everything the sessions of one engine share.
pub(super) struct Nodes {
    pub(super) config: Config,
    pub(super) post: Arc<Post>,
    all: Vec<Arc<Node>>,
}

impl Nodes {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let post = Arc::new(Post::new());
        let node = |(at, redis)| Node::new(at, redis, config.longest, post.clone());
        let all = config.nodes().enumerate().map(node).collect();
        Arc::new(Self { config, post, all })
    }

    pub(super) fn all(&self) -> &[Arc<Node>] {
        &self.all
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Whether so many noes leave no majority.
    pub(super) fn hopeless(&self, noes: usize) -> bool {
        self.all.len() - noes < self.majority()
    }

    /// Waits for the first connections: a little for all of them, and longer for a majority.
    pub(super) async fn ready(&self) -> Said<()> {
        let there = |said: &Said<()>| said.iter().flatten().flatten().count() >= self.majority();
        let patience = self.config.unhurried();
        let said = self.first().until(patience / 4, |_| false).await;
        match there(&said) {
            true => said,
            false => self.first().until(patience, there).await,
        }
    }

    fn first(&self) -> Calls<()> {
        Calls::new(self.all.iter().map(|node| {
            let node = node.clone();
            Box::pin(async move { node.link().ready().await }) as Call<()>
        }))
    }

    /// Asks every node at once, until enough is known or the time is over. A request comes to its node
    /// before every later request, also if this future is dropped once it was polled.
    pub(super) async fn ask(
        &self,
        runs: Vec<Run>,
        patience: Duration,
        enough: impl FnMut(&Said<Answers>) -> bool + Send,
    ) -> Said<Answers> {
        let runs: Arc<[Run]> = runs.into();
        let calls = self
            .all
            .iter()
            .map(|node| Box::pin(node.clone().run(runs.clone())) as Call<Answers>);
        Calls::new(calls).until(patience, enough).await
    }

    /// Tells every node that can be reached, and waits for no answer.
    pub(super) async fn tell(&self, runs: Vec<Run>) {
        drop(self.ask(runs, Duration::ZERO, |_| true).await);
    }

    /// Leaves an entry on every node that can be reached.
    pub(super) async fn note(&self, entry: Entry) {
        let noted = self.all.iter().map(|node| {
            let (node, entry) = (node.clone(), entry.clone());
            Box::pin(async move { node.link().send(&[entry]).await.map(drop) }) as Call<()>
        });
        drop(
            Calls::new(noted)
                .until(self.config.unhurried(), |_| false)
                .await,
        );
    }

    /// Asks about one claim.
    pub(super) async fn votes(
        &self,
        run: Run,
        patience: Duration,
        mut enough: impl FnMut(&Said<Vote>) -> bool + Send,
    ) -> Said<Vote> {
        let said = self
            .ask(vec![run], patience, |said| enough(&votes_at(said, 0)))
            .await;
        votes_at(&said, 0)
    }

    /// Why there is no majority.
    pub(super) fn short<T>(&self, said: &Said<T>, step: Step) -> Error {
        let troubles: Vec<_> = said
            .iter()
            .filter_map(|said| said.as_ref()?.as_ref().err())
            .collect();
        let error = match troubles.iter().find(|trouble| trouble.is_final()) {
            Some(why) => (*why).clone().at(step),
            None => {
                let (kind, why) = match troubles.first() {
                    Some(why) => (ErrorKind::Unavailable, why.to_string()),
                    None => (
                        ErrorKind::TimedOut,
                        "the other nodes did not answer in time".to_owned(),
                    ),
                };
                let what = format!("no majority of the {} nodes answers: {why}", self.all.len());
                Error::new(kind, step, what)
            }
        };
        // Nothing is held by a session that did not open.
        match step == Step::Open || said.iter().all(is_unsent) {
            true => error.on("redlock"),
            false => error.on("redlock").perhaps(),
        }
    }
}

/// Whether the node was surely not told.
fn is_unsent<T>(said: &Option<Result<T, Trouble>>) -> bool {
    use Trouble::{Config, Denied, Down, Unfit};
    matches!(said, Some(Err(Down(_) | Denied(_) | Config(_) | Unfit(_))))
}

/// The vote of each node on the claim at this place.
pub(super) fn votes_at(said: &Said<Answers>, at: usize) -> Said<Vote> {
    let one = |answers: &Answers| {
        answers
            .get(at)
            .map_or_else(|| Err(Trouble::strange("too few answers")), |one| vote(one))
    };
    let each = said.iter().map(|said| {
        said.as_ref()
            .map(|said| said.as_ref().map_err(Trouble::clone).and_then(one))
    });
    each.collect()
}

/// How many nodes said such a thing.
pub(super) fn count(said: &Said<Vote>, wanted: impl Fn(&Vote) -> bool) -> usize {
    said.iter()
        .flatten()
        .flatten()
        .filter(|vote| wanted(vote))
        .count()
}

/// How many nodes said something that is not such a thing, or cannot be reached.
pub(super) fn count_noes(said: &Said<Vote>, wanted: impl Fn(&Vote) -> bool) -> usize {
    let no = |said: &&Result<Vote, Trouble>| !said.as_ref().is_ok_and(&wanted);
    said.iter().flatten().filter(no).count()
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nodes({})", self.config.location())
    }
}
