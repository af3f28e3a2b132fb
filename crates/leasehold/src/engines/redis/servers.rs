//! The servers of one deployment: which of them has a line, and how the script is run there.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::cluster::Cluster;
use super::config::{Config, Shape};
use super::error::Trouble;
use super::keys::Bucket;
use super::link::{Dial, Link, Owner};
use super::mailbox::Mailbox;
use super::resp::{Call, Reply};
use super::script::{self, Run};
use super::sentinel::Sentinels;
use super::wire::{Channel, Target};
use crate::sync::Shared;

/// Everything the sessions of one engine share.
pub(super) struct Servers {
    pub(super) config: Config,
    pub(super) mailbox: Mailbox,
    /// Where this process listens; its first letter says how.
    pub(super) address: String,
    /// How the script is called.
    begin: OnceLock<Call>,
    route: Route,
    this: Weak<Self>,
}

enum Route {
    One(Shared<Option<Arc<Link>>>),
    Cluster(Cluster),
}

/// What the script answers for each line of a run.
pub(super) type Answers = Vec<Reply>;

/// How many runs are sent at once.
const AT_ONCE: usize = 8;

/// How long to wait before asking a server again that cannot now.
const PAUSE: Duration = Duration::from_millis(25);

impl Servers {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let clustered = config.shape == Shape::Cluster;
        let letter = if clustered { 's' } else { 'p' };
        Arc::new_cyclic(|this| Self {
            address: format!("{letter}{:016x}", rand::random::<u64>()),
            mailbox: Mailbox::default(),
            begin: OnceLock::new(),
            route: match clustered {
                true => Route::Cluster(Cluster::default()),
                false => Route::One(Shared::default()),
            },
            config,
            this: this.clone(),
        })
    }

    pub(super) fn start(&self, dial: Arc<dyn Dial>) -> Arc<Link> {
        let owner: Weak<dyn Owner> = self.this.clone();
        Link::start(dial, owner, self.config.patience)
    }

    /// Makes the first connections, or says why that does not work.
    pub(super) async fn ready(&self) -> Result<(), Trouble> {
        match &self.route {
            Route::One(_) => self.link(None).await?.ready().await,
            Route::Cluster(cluster) => {
                cluster.refresh(self, cluster.version()).await?;
                for link in cluster.links() {
                    link.ready().await?;
                }
                Ok(())
            }
        }
    }

    /// Claims with the same answer can be asked about in one call.
    pub(super) fn group(&self, bucket: Bucket) -> Option<Bucket> {
        match &self.route {
            Route::One(_) => None,
            Route::Cluster(_) => Some(bucket),
        }
    }

    /// The server that has these lines.
    pub(super) async fn link(&self, bucket: Option<Bucket>) -> Result<Arc<Link>, Trouble> {
        match (&self.route, bucket) {
            (Route::Cluster(cluster), Some(bucket)) => cluster.link(self, bucket.slot()).await,
            (Route::Cluster(cluster), None) => cluster.link(self, 0).await,
            (Route::One(link), _) => {
                let mut link = link.lock();
                Ok(link.get_or_insert_with(|| self.start(self.dial())).clone())
            }
        }
    }

    /// The server that has the keys of a slot.
    pub(super) async fn link_of_slot(&self, slot: u16) -> Result<Arc<Link>, Trouble> {
        match &self.route {
            Route::One(_) => self.link(None).await,
            Route::Cluster(cluster) => cluster.link(self, slot).await,
        }
    }

    /// Every server that has lines.
    pub(super) async fn links(&self) -> Result<Vec<Arc<Link>>, Trouble> {
        match &self.route {
            Route::One(_) => Ok(vec![self.link(None).await?]),
            Route::Cluster(cluster) => {
                cluster.refresh(self, cluster.version()).await?;
                Ok(cluster.links())
            }
        }
    }

    fn dial(&self) -> Arc<dyn Dial> {
        match &self.config.shape {
            Shape::Sentinel { master, login } => {
                Arc::new(Sentinels::new(&self.config, master.clone(), login.clone()))
            }
            _ => Arc::new(Fixed(self.config.target(self.config.hosts[0].clone()))),
        }
    }

    /// Runs the script for one line on the server that has it, also when that is another one by now.
    pub(super) async fn run(&self, bucket: Bucket, run: &Run) -> Result<Reply, Trouble> {
        let mut left = self.config.patience;
        loop {
            let link = self.link(Some(bucket)).await?;
            let trouble = match self.run_one(&link, run).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            // In a box, as all that is rare: otherwise every call would be large to move.
            let elsewhere = Box::pin(self.elsewhere(&link, bucket, &trouble));
            if !elsewhere.await || left.is_zero() {
                return Err(trouble);
            }
            tokio::time::sleep(PAUSE).await;
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Runs the script for one line, with nothing made on the way: this is what every lock waits for.
    async fn run_one(&self, link: &Link, run: &Run) -> Result<Reply, Trouble> {
        if let Some(begin) = self.begin.get()
            && self.config.replicas == 0
        {
            let call = run.call(begin);
            let reply = link.send(std::slice::from_ref(&call)).await?.pop();
            let reply = reply.ok_or_else(|| Trouble::strange("no answer"))?;
            if !is_forgotten(&reply) {
                let answer = run.answer(reply);
                if matches!(answer, Err(Trouble::Strange(_))) {
                    // Whatever it says next may belong to somebody else.
                    link.renew();
                }
                return answer;
            }
        }
        let mut answers = Box::pin(self.run_some(link, std::slice::from_ref(run))).await?;
        let answers = answers.pop().transpose()?.unwrap_or_default();
        let answer = answers.into_iter().next();
        answer.ok_or_else(|| Trouble::strange("no answer"))
    }

    /// Whether a call that was not done may be done when it is asked again.
    pub(super) async fn elsewhere(
        &self,
        link: &Arc<Link>,
        bucket: Bucket,
        trouble: &Trouble,
    ) -> bool {
        let down = matches!(trouble, Trouble::Down(_));
        match &self.route {
            Route::Cluster(cluster) if down || trouble.is_passing() => {
                let _ = cluster.refresh(self, cluster.version()).await;
                let now = cluster.link(self, bucket.slot()).await;
                !down || now.is_ok_and(|now| !Arc::ptr_eq(&now, link))
            }
            _ => {
                if trouble.code() == "READONLY" {
                    link.renew();
                }
                trouble.is_passing()
            }
        }
    }

    /// Runs the script several times, some runs to a round trip: others have their turn in between.
    pub(super) async fn run_on(
        &self,
        link: &Link,
        runs: &[Run],
    ) -> Result<Vec<Result<Answers, Trouble>>, Trouble> {
        let mut answers = Vec::with_capacity(runs.len());
        for runs in runs.chunks(AT_ONCE) {
            answers.extend(self.run_some(link, runs).await?);
        }
        Ok(answers)
    }

    /// Runs the script in one round trip, and loads it if the server has forgotten it.
    async fn run_some(
        &self,
        link: &Link,
        runs: &[Run],
    ) -> Result<Vec<Result<Answers, Trouble>>, Trouble> {
        if self.begin.get().is_none() {
            // The first connection brings it.
            link.ready().await?;
        }
        let begin = self
            .begin
            .get()
            .ok_or_else(|| Trouble::strange("no script"))?;
        let mut calls: Vec<_> = runs.iter().map(|run| run.call(begin)).collect();
        let replicas = self.config.replicas > 0 && runs.iter().any(Run::may_grant);
        if replicas {
            calls.push(self.wait());
        }
        let mut replies = link.send(&calls).await?;
        if replies.iter().any(is_forgotten) {
            calls.insert(0, script::load());
            replies = link.send(&calls).await?;
            drop(replies.remove(0));
        }
        if replicas {
            self.enough(replies.pop())?;
        }
        let answers = runs
            .iter()
            .zip(replies)
            .map(|(run, reply)| run.answers(reply));
        let answers: Vec<_> = answers.collect();
        if answers
            .iter()
            .any(|answer| matches!(answer, Err(Trouble::Strange(_))))
        {
            // Whatever it says next may belong to somebody else.
            link.renew();
        }
        Ok(answers)
    }

    /// Replicas get less time than it takes to think that the server is silent.
    fn wait(&self) -> Call {
        let patience = (self.config.patience / 4).as_millis().to_string();
        Call::new("WAIT")
            .arg(self.config.replicas.to_string())
            .arg(patience)
    }

    fn enough(&self, reply: Option<Reply>) -> Result<(), Trouble> {
        let have = reply
            .ok_or_else(|| Trouble::strange("no answer"))?
            .number()?;
        match have >= self.config.replicas {
            true => Ok(()),
            false => Err(Trouble::Few {
                have,
                need: self.config.replicas,
            }),
        }
    }
}

fn is_forgotten(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(trouble) if trouble.code() == "NOSCRIPT")
}

impl Owner for Servers {
    fn greeting(&self) -> Vec<Call> {
        let looks = ["INFO server", "INFO memory", "ROLE"].map(Call::new);
        std::iter::once(script::load()).chain(looks).collect()
    }

    fn greeted(&self, replies: Vec<Reply>) -> Result<(), Trouble> {
        let [digest, server, memory, role]: [Reply; 4] =
            replies.try_into().map_err(Trouble::strange)?;
        let _ = self.begin.set(script::begin(&digest.text()?));
        super::fit::check(&[server, memory], &role, &self.config)
    }

    fn channels(&self, target: &Target) -> Vec<Channel> {
        let keys = &self.config.keys;
        match &self.route {
            Route::One(_) => vec![Channel::Plain(keys.channel(&self.address))],
            Route::Cluster(cluster) => {
                let buckets = cluster.buckets(&target.address);
                buckets
                    .map(|bucket| Channel::Sharded(keys.sharded(bucket, &self.address)))
                    .collect()
            }
        }
    }

    fn heard(&self, _: &[u8], message: &[u8]) {
        self.mailbox.heard(message);
    }

    fn missed(&self) {
        self.mailbox.missed();
    }
}

/// Always the same server.
#[derive(Debug)]
pub(super) struct Fixed(pub(super) Target);

#[async_trait::async_trait]
impl Dial for Fixed {
    async fn target(&self) -> Result<Target, Trouble> {
        Ok(self.0.clone())
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Servers({})", self.config.location())
    }
}
