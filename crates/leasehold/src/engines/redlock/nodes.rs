//! All nodes, and what a majority of them says.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::error::Trouble;
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

/// What each node said; none if it said nothing in time.
pub(super) type Said<T> = Vec<Option<Result<T, Trouble>>>;

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

    /// Asks every node at once, until enough is known or the time is over. After the first poll every node that can be
    /// reached has the calls or will have them before any later ones, also if this future is dropped.
    pub(super) async fn ask(
        &self,
        runs: &[Run],
        patience: Duration,
        mut enough: impl FnMut(&Said<Answers>) -> bool + Send,
    ) -> Said<Answers> {
        let mut calls: Vec<_> = self.all.iter().map(|node| Some(Box::pin(node.run(runs)))).collect();
        let mut said: Said<Answers> = self.all.iter().map(|_| None).collect();
        let gather = poll_fn(|context| {
            for (call, said) in calls.iter_mut().zip(&mut said) {
                if let Some(pending) = call
                    && let Poll::Ready(answer) = pending.as_mut().poll(context)
                {
                    *said = Some(answer);
                    *call = None;
                }
            }
            match calls.iter().all(Option::is_none) || enough(&said) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        // Whoever is silent counts as a node that did not vote.
        let _ = tokio::time::timeout(patience, gather).await;
        said
    }

    /// Tells every node that can be reached, and waits for no answer.
    pub(super) async fn tell(&self, runs: &[Run]) {
        drop(self.ask(runs, Duration::ZERO, |_| true).await);
    }

    /// Asks about one claim.
    pub(super) async fn votes(
        &self,
        run: Run,
        patience: Duration,
        mut enough: impl FnMut(&Said<Vote>) -> bool + Send,
    ) -> Said<Vote> {
        let said = self.ask(&[run], patience, |said| enough(&votes_at(said, 0))).await;
        votes_at(&said, 0)
    }

    /// Why there is no majority.
    pub(super) fn short<T>(&self, said: &Said<T>, step: Step) -> Error {
        let troubles: Vec<_> = said.iter().filter_map(|said| said.as_ref()?.as_ref().err()).collect();
        if let Some(why) = troubles.iter().find(|trouble| trouble.is_final()) {
            return (*why).clone().at(step).on("redlock").perhaps();
        }
        let answered = said.iter().flatten().filter(|said| said.is_ok()).count();
        let why = troubles.first().map_or("the others are silent".to_owned(), |why| format!("{why:?}"));
        let what = format!("{answered} of {} nodes answer, and {} must: {why}", self.all.len(), self.majority());
        Error::new(ErrorKind::Unavailable, step, what).on("redlock").perhaps()
    }
}

/// What each node said of the claim at this place.
pub(super) fn votes_at(said: &Said<Answers>, at: usize) -> Said<Vote> {
    let one = |answers: &Answers| answers.get(at).map_or_else(|| Err(Trouble::strange("too few answers")), |one| vote(one));
    let each = said.iter().map(|said| said.as_ref().map(|said| said.as_ref().map_err(Trouble::clone).and_then(one)));
    each.collect()
}

/// How many nodes said such a thing.
pub(super) fn count(said: &Said<Vote>, wanted: impl Fn(&Vote) -> bool) -> usize {
    said.iter().flatten().flatten().filter(|vote| wanted(vote)).count()
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
