//! One node: a server of its own, asked without waiting for a connection.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use super::super::config::Config as Redis;
use super::super::error::Trouble;
use super::super::fit;
use super::super::link::{Link, Owner};
use super::super::resp::{Call, Reply};
use super::super::servers::Fixed;
use super::super::wire::{Channel, Target};
use super::post::Post;
use super::script::{self, Run};
use crate::sync::Shared;

/// A node and the connection to it.
pub(super) struct Node {
    at: usize,
    config: Redis,
    longest: Duration,
    post: Arc<Post>,
    link: OnceLock<Arc<Link>>,
    /// Which run of the server we are connected to, and how many seconds it had been up then.
    run: Shared<(String, u64)>,
    digest: OnceLock<String>,
    this: Weak<Self>,
}

/// What a node answers for each name of each run.
pub(super) type Answers = Vec<Vec<Reply>>;

impl Node {
    pub(super) fn new(at: usize, config: Redis, longest: Duration, post: Arc<Post>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            at,
            config,
            longest,
            post,
            link: OnceLock::new(),
            run: Shared::default(),
            digest: OnceLock::new(),
            this: this.clone(),
        })
    }

    pub(super) fn link(&self) -> &Link {
        self.link.get_or_init(|| {
            let target = self.config.target(self.config.hosts[0].clone());
            let owner: Weak<dyn Owner> = self.this.clone();
            Link::start(Arc::new(Fixed(target)), owner, self.config.patience)
        })
    }

    /// Runs the script, all in one round trip. A node without a connection says so at once: there are others.
    ///
    /// With a connection the calls stand in line for it after the first poll.
    pub(super) async fn run(self: Arc<Self>, runs: Arc<[Run]>) -> Result<Answers, Trouble> {
        self.connected().await?;
        let runs = &*runs;
        let replies = self.link().send(&self.calls(runs)).await?;
        let forgotten =
            |reply: &Reply| matches!(reply, Reply::Refused(why) if why.code() == "NOSCRIPT");
        let replies = match replies.iter().any(forgotten) {
            false => replies,
            true => {
                let mut calls = vec![script::load()];
                calls.extend(self.calls(runs));
                self.link().send(&calls).await?.split_off(1)
            }
        };
        let mut answers = Vec::new();
        for (run, reply) in runs.iter().zip(replies) {
            answers.extend(run.answers(reply)?);
        }
        Ok(answers)
    }

    /// Whether there is a connection now.
    async fn connected(&self) -> Result<(), Trouble> {
        let mut ready = pin!(self.link().ready());
        let now = poll_fn(|context| Poll::Ready(ready.as_mut().poll(context))).await;
        match now {
            Poll::Ready(ready) => ready,
            Poll::Pending => Err(Trouble::Down("there is no connection yet".to_owned())),
        }
    }

    fn calls(&self, runs: &[Run]) -> Vec<Call> {
        let marker = format!("{}!run", self.config.keys.prefix);
        let digest = self.digest.get().map_or("", String::as_str);
        let run = self.run.lock().clone();
        runs.iter()
            .map(|one| one.call(digest, &marker, &run, self.longest))
            .collect()
    }
}

impl Owner for Node {
    fn greeting(&self) -> Vec<Call> {
        vec![
            script::load(),
            Call::new("INFO server"),
            Call::new("INFO memory"),
            Call::new("ROLE"),
        ]
    }

    fn channels(&self, _: &Target) -> Vec<Channel> {
        vec![Channel::Plain(self.config.keys.channel(&self.post.address))]
    }

    fn greeted(&self, replies: Vec<Reply>) -> Result<(), Trouble> {
        let mut replies = replies.into_iter();
        let mut next = || {
            replies
                .next()
                .ok_or_else(|| Trouble::strange("a short greeting"))
        };
        let _ = self.digest.set(next()?.text()?);
        let infos = [next()?, next()?];
        fit::check(&infos, &next()?, &self.config)?;
        let server = infos[0].clone().text()?;
        let field = |name: &str| {
            server
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let unseen = || {
            Trouble::Unfit(
                "INFO server does not tell when the node began, and its vote depends on it"
                    .to_owned(),
            )
        };
        let run = field("run_id:").ok_or_else(unseen)?;
        let up = field("uptime_in_seconds:")
            .and_then(|up| up.parse().ok())
            .ok_or_else(unseen)?;
        *self.run.lock() = (run.to_owned(), up);
        Ok(())
    }

    fn heard(&self, _: &[u8], message: &[u8]) {
        self.post.heard(self.at, message);
    }

    // What was missed is made up for by the next look; one node is not worth more.
    fn missed(&self) {}
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.config.hosts[0])
    }
}
