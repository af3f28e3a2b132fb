//! The servers of one deployment: which of them has a line, and how the script is run there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::client::{Call, Channel, Cluster, Common, Reply, Server, Unasked};
use super::super::config::{Config, Shape};
use super::super::error::Trouble;
use super::super::keys::Bucket;
use super::mailbox::Mailbox;
use super::script::{self, Run};
use crate::sync::Shared;

/// Everything the sessions of one engine share.
pub(in super::super) struct Servers {
    pub(in super::super) config: Config,
    pub(super) mailbox: Arc<Mailbox>,
    /// Where this process listens; its first letter says how.
    pub(super) address: String,
    route: Route,
}

enum Route {
    One(Common, Shared<Option<Arc<Server>>>),
    Cluster(Cluster),
}

/// The script's answer for each line of a run.
pub(super) type Answers = Vec<Reply>;

/// How many runs are sent at once.
const AT_ONCE: usize = 8;

/// How long to wait before asking a server again that cannot now.
const PAUSE: Duration = Duration::from_millis(25);

impl Servers {
    pub(in super::super) fn new(config: Config) -> Arc<Self> {
        let clustered = matches!(config.shape, Shape::Cluster);
        let letter = if clustered { 's' } else { 'p' };
        let address = format!("{letter}{:016x}", rand::random::<u64>());
        let mailbox = Arc::<Mailbox>::default();
        let common = Common {
            config: config.clone(),
            script: script::TEXT,
            hear: {
                let mailbox = mailbox.clone();
                Arc::new(move |heard| match heard {
                    Unasked::Message { message, .. } => mailbox.heard(message),
                    Unasked::Missed => mailbox.missed(),
                })
            },
        };
        let sharded = |bucket: Bucket| Channel::Sharded(config.keys.sharded(bucket, &address));
        let channels = Bucket::all().map(|bucket| (bucket.slot(), sharded(bucket)));
        let route = match clustered {
            true => Route::Cluster(Cluster::new(common, channels.collect())),
            false => Route::One(common, Shared::default()),
        };
        Arc::new(Self {
            mailbox,
            address,
            route,
            config,
        })
    }

    /// Makes the first connections, or says why that does not work.
    pub(super) async fn ready(&self) -> Result<(), Trouble> {
        for server in self.links().await? {
            server.ready().await?;
        }
        Ok(())
    }

    /// Claims with the same answer can be asked about in one call.
    pub(super) fn group(&self, bucket: Bucket) -> Option<Bucket> {
        match &self.route {
            Route::One(..) => None,
            Route::Cluster(_) => Some(bucket),
        }
    }

    /// The server that has these lines.
    pub(super) async fn link(&self, bucket: Option<Bucket>) -> Result<Arc<Server>, Trouble> {
        self.link_of_slot(bucket.map_or(0, Bucket::slot)).await
    }

    /// The server that has the keys of a slot.
    pub(in super::super) async fn link_of_slot(&self, slot: u16) -> Result<Arc<Server>, Trouble> {
        match &self.route {
            Route::Cluster(cluster) => cluster.of_slot(slot).await,
            Route::One(common, server) => {
                let channel = Channel::Plain(self.config.keys.channel(&self.address));
                let mut server = server.lock();
                let _ = server.take_if(|server| server.is_over());
                let server = server.get_or_insert_with(|| common.server(None, [channel]));
                Ok(server.clone())
            }
        }
    }

    /// Every server that has lines.
    pub(super) async fn links(&self) -> Result<Vec<Arc<Server>>, Trouble> {
        match &self.route {
            Route::One(..) => Ok(vec![self.link(None).await?]),
            Route::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// Runs the script for one line on the server that has it, also when that is another one by now.
    pub(super) async fn run(&self, bucket: Bucket, run: &Run) -> Result<Reply, Trouble> {
        let (mut left, mut repeated) = (self.config.patience, false);
        loop {
            let server = self.link(Some(bucket)).await?;
            let trouble = match self.run_one(&server, run).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            // In a box, as all that is rare: otherwise every call would be large to move.
            let trouble = match Box::pin(self.run_migrating(&server, trouble, run)).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            // The connection may have been cut long before, and a claim that is asked for again gets the same answer.
            let cut = matches!(trouble, Trouble::Cut(_)) && run.may_repeat();
            let again = cut && !std::mem::replace(&mut repeated, true);
            let elsewhere = async || Box::pin(self.elsewhere(&server, bucket, &trouble)).await;
            if !again && (left.is_zero() || !elsewhere().await) {
                // The first request may have happened, however the repetition ended.
                return Err(match repeated {
                    true => Trouble::Cut(trouble.to_string()),
                    false => trouble,
                });
            }
            tokio::time::sleep(PAUSE).await;
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Runs the script for one line: this is what every lock waits for.
    async fn run_one(&self, server: &Server, run: &Run) -> Result<Reply, Trouble> {
        let wait = self.wait_for([run]);
        let waits = wait.is_some();
        let replies = server.run([run.words()], wait).await?;
        self.answer(server, run, replies, waits)
    }

    /// Runs the script for a line whose slot is on its way to another server. The line is where its first key is, and a
    /// server answers for keys that it has: so the one that the slot leaves is asked first, and only if it has no
    /// such key the one that it names.
    async fn run_migrating(
        &self,
        server: &Server,
        mut trouble: Trouble,
        run: &Run,
    ) -> Result<Reply, Trouble> {
        let (Route::Cluster(cluster), true) = (&self.route, trouble.is_migration()) else {
            return Err(trouble);
        };
        let Some(narrow) = run.narrow() else {
            return Err(trouble);
        };
        let importing = match self.run_one(server, &narrow).await {
            Err(Trouble::Refused { code, detail }) if code == "ASK" => {
                cluster.importing(&detail)?
            }
            answered => return answered,
        };
        for run in [&narrow, run] {
            let wait = self.wait_for([run]);
            let waits = wait.is_some();
            let replies = importing.run_asking(run.words(), wait).await?;
            match self.answer(&importing, run, replies, waits) {
                Err(again) if again.is_migration() => trouble = again,
                answered => return answered,
            }
        }
        Err(trouble)
    }

    fn answer(
        &self,
        server: &Server,
        run: &Run,
        mut replies: Vec<Reply>,
        waits: bool,
    ) -> Result<Reply, Trouble> {
        if waits {
            self.enough(replies.pop())?;
        }
        let reply = replies.pop().ok_or_else(|| Trouble::strange("no answer"));
        self.trusted(server, run.answer(reply?))
    }

    /// Whether a call that was not done may be done when it is asked again.
    pub(in super::super) async fn elsewhere(
        &self,
        server: &Arc<Server>,
        bucket: Bucket,
        trouble: &Trouble,
    ) -> bool {
        let down = matches!(trouble, Trouble::Down(_));
        match &self.route {
            Route::Cluster(_) if trouble.is_migration() => true,
            Route::Cluster(cluster) if down || trouble.is_passing() => {
                let _ = cluster.refresh().await;
                let now = cluster.of_slot(bucket.slot()).await;
                !down || now.is_ok_and(|now| !Arc::ptr_eq(&now, server))
            }
            _ => {
                if trouble.code() == "READONLY" {
                    server.renew();
                }
                trouble.is_passing()
            }
        }
    }

    /// Runs the script several times, some runs to a round trip: others have their turn in between.
    pub(super) async fn run_on(
        &self,
        server: &Server,
        runs: &[Run],
    ) -> Result<Vec<Result<Answers, Trouble>>, Trouble> {
        let mut answers = Vec::with_capacity(runs.len());
        for runs in runs.chunks(AT_ONCE) {
            let wait = self.wait_for(runs);
            let waits = wait.is_some();
            let mut replies = server.run(runs.iter().map(Run::words), wait).await?;
            if waits {
                self.enough(replies.pop())?;
            }
            let each = runs.iter().zip(replies);
            answers.extend(each.map(|(run, reply)| self.trusted(server, run.answers(reply))));
        }
        Ok(answers)
    }

    /// After an answer to another call, whatever comes next on this connection may be one, too.
    fn trusted<T>(&self, server: &Server, answer: Result<T, Trouble>) -> Result<T, Trouble> {
        if matches!(answer, Err(Trouble::Strange(_))) {
            server.renew();
        }
        answer
    }

    /// Waits for the replicas if one of these runs may grant: for less time than it takes to think that the server is
    /// silent.
    fn wait_for<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) -> Option<Call> {
        let grants = self.config.replicas > 0 && runs.into_iter().any(Run::may_grant);
        grants.then(|| {
            let patience = (self.config.patience / 4).as_millis().to_string();
            let replicas = self.config.replicas.to_string();
            Call::new("WAIT").arg(replicas).arg(patience)
        })
    }

    fn enough(&self, reply: Option<Reply>) -> Result<(), Trouble> {
        let need = self.config.replicas;
        let have = reply.ok_or_else(|| Trouble::strange("no answer"))?;
        match have.number()? {
            have if have >= need => Ok(()),
            have => Err(Trouble::Few { have, need }),
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Servers({})", self.config.location())
    }
}
