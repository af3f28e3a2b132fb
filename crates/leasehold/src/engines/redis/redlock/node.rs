//! One node: a server of its own, asked without waiting for a connection.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::super::client::{Channel, Common, Reply, Server, Unasked};
use super::super::config::Config as Redis;
use super::super::error::Trouble;
use super::super::fit::field;
use super::post::Post;
use super::script::{self, Run};

/// A node and the connection to it.
pub(super) struct Node {
    at: usize,
    config: Redis,
    longest: Duration,
    post: Arc<Post>,
    link: OnceLock<Arc<Server>>,
}

/// The node's answer for each name of each run.
pub(super) type Answers = Vec<Vec<Reply>>;

impl Node {
    pub(super) fn new(at: usize, config: Redis, longest: Duration, post: Arc<Post>) -> Arc<Self> {
        Arc::new(Self {
            at,
            config,
            longest,
            post,
            link: OnceLock::new(),
        })
    }

    pub(super) fn link(&self) -> &Server {
        self.link.get_or_init(|| {
            let (at, post) = (self.at, self.post.clone());
            let common = Common {
                config: self.config.clone(),
                script: script::TEXT,
                hear: Arc::new(move |heard| match heard {
                    Unasked::Message { message, .. } => post.heard(at, message),
                    // The next look makes up for it; one node is not worth more.
                    Unasked::Missed => {}
                }),
            };
            let channel = self.config.keys.channel(&self.post.address);
            common.server(None, [Channel::Plain(channel)])
        })
    }

    /// Runs the script, all in one round trip. A node without a connection says so at once: there are others.
    ///
    /// With a connection the calls stand in line for it after the first poll.
    pub(super) async fn run(self: Arc<Self>, runs: Arc<[Run]>) -> Result<Answers, Trouble> {
        // Which run of the server we are connected to, and how many seconds it had been up then.
        let info = self.link().info()?;
        let unseen = "INFO server does not tell when the node started, and its vote depends on that: allow INFO to this user";
        let unseen = || Trouble::Unfit(unseen.to_owned());
        let run = field(&info, "run_id:").ok_or_else(unseen)?;
        let up = field(&info, "uptime_in_seconds:").ok_or_else(unseen)?;
        let marker = format!("{}!run", self.config.keys.prefix);
        let words = |one: &Run| one.words(&marker, (run, up), self.longest);
        let replies = self.link().run(runs.iter().map(words), None).await?;
        let mut answers = Vec::new();
        for (run, reply) in runs.iter().zip(replies) {
            answers.extend(run.answers(reply)?);
        }
        Ok(answers)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.config.hosts[0])
    }
}
