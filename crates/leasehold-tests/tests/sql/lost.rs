//! Every operation, cut at each of its messages: the caller's answer is true, no other claim is touched, and nothing
//! stays.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{
    Claim, Engine, Identity, Inbox, Mode, Query, Release, Session, Sql, Standing, Url,
};
use leasehold::{ErrorKind, Name};
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

/// The messages of one operation, and of what it does again, both ways.
const MESSAGES: u64 = 8;

struct Cut {
    engine: Sql,
    session: Arc<dyn Session>,
    /// By another way, which is not cut.
    direct: Sql,
    other: Arc<dyn Session>,
    proxy: Proxy,
}

fn engine(url: &str) -> Sql {
    Sql::from_url(&Url::parse(url).expect("a URL")).expect("an engine")
}

async fn open(engine: &Sql) -> Arc<dyn Session> {
    let who = Identity::of_this_process();
    let opened = engine.open(&who, Inbox::new(|_| {})).await;
    opened.expect("a session")
}

fn claim(name: &str, mode: Mode) -> Arc<Claim> {
    let name = Name::new(name).expect("a name");
    Arc::new(Claim::new(name, mode, Duration::from_secs(60)))
}

async fn hold(session: &Arc<dyn Session>, claim: &Claim) -> u64 {
    match session.claim(claim).await.expect("claimed") {
        Standing::Held(held) => held.fence.get(),
        other => panic!("{other:?}"),
    }
}

async fn wait(session: &Arc<dyn Session>, claim: &Claim) {
    let standing = session.claim(claim).await.expect("claimed");
    assert!(matches!(standing, Standing::Waiting { .. }), "{standing:?}");
}

impl Cut {
    async fn new(url: impl Fn(u16) -> String, port: u16) -> Self {
        let proxy = Proxy::before(port);
        let (engine, direct) = (engine(&url(proxy.port)), engine(&url(port)));
        let (session, other) = (open(&engine).await, open(&direct).await);
        Self {
            engine,
            session,
            direct,
            other,
            proxy,
        }
    }

    /// The holders and the waiters, by the way that is not cut.
    async fn line(&self, name: &Name) -> (usize, usize) {
        let lines = self.direct.inspect(&Query::name(name.clone())).await;
        let lines = lines.expect("seen");
        let line = lines.first();
        line.map_or((0, 0), |line| (line.holders.len(), line.waiters.len()))
    }

    /// Uses the connection, so that it is there when it is cut.
    async fn warm(&self) {
        let warm = claim("warm", Mode::Mutex);
        let _ = hold(&self.session, &warm).await;
        let _ = self.session.release(&warm, 1).await.expect("released");
    }

    /// A claim: told that it holds or waits, it does; told that nothing happened, nothing did.
    async fn claim(&self, way: Way, messages: u64, crowd: bool) {
        self.warm().await;
        let name = format!("claim:{way:?}:{messages}:{crowd}");
        let (theirs, ours) = (claim(&name, Mode::Mutex), claim(&name, Mode::Mutex));
        if crowd {
            let _ = hold(&self.other, &theirs).await;
        }
        self.proxy.after(way, messages, Fate::Reset);
        let answer = self.session.claim(&ours).await;
        self.proxy.set_both(Fate::Pass);
        let line = self.line(&ours.name).await;
        match &answer {
            Ok(Standing::Held(_)) => assert_eq!((line, crowd), ((1, 0), false)),
            Ok(Standing::Waiting { .. }) => assert_eq!((line, crowd), ((1, 1), true)),
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.may_have_happened() => {}
            Err(_) => assert_eq!(line, (usize::from(crowd), 0), "{answer:?}"),
        }
        let _ = self.session.release(&ours, 1).await;
        let line = self.line(&ours.name).await;
        assert_eq!(line, (usize::from(crowd), 0), "nothing stays: {answer:?}");
    }

    /// A release: never told that the claim was lost, because it was not.
    async fn release(&self, way: Way, messages: u64, crowd: bool) {
        self.warm().await;
        let name = format!("release:{way:?}:{messages}:{crowd}");
        let (ours, theirs) = (claim(&name, Mode::Mutex), claim(&name, Mode::Mutex));
        let _ = hold(&self.session, &ours).await;
        if crowd {
            wait(&self.other, &theirs).await;
        }
        self.proxy.after(way, messages, Fate::Reset);
        let answer = self.session.release(&ours, 1).await;
        self.proxy.set_both(Fate::Pass);
        let line = self.line(&ours.name).await;
        match &answer {
            Ok(Release::Released) => assert_eq!(line, (usize::from(crowd), 0)),
            Ok(_) => panic!("{name}: it was not lost"),
            Err(error) if error.may_have_happened() => {}
            Err(error) => assert_eq!(line, (1, usize::from(crowd)), "{error}"),
        }
        let _ = self.session.release(&ours, 1).await;
        let line = self.line(&ours.name).await;
        assert_eq!(line, (usize::from(crowd), 0), "{answer:?}");
    }

    /// A heartbeat: the answer is true, and the claim is still there.
    async fn heartbeat(&self, way: Way, messages: u64) {
        self.warm().await;
        let name = format!("beat:{way:?}:{messages}");
        let ours = claim(&name, Mode::Mutex);
        let _ = hold(&self.session, &ours).await;
        self.proxy.after(way, messages, Fate::Reset);
        let heard = std::sync::Mutex::new(Vec::new());
        let hear = |_: &Claim, standing| heard.lock().expect("no panic").push(standing);
        let _ = self
            .session
            .heartbeat(std::slice::from_ref(&ours), &hear)
            .await;
        self.proxy.set_both(Fate::Pass);
        let heard = heard.into_inner().expect("no panic");
        assert!(
            heard.iter().all(|s| matches!(s, Standing::Held(_))),
            "{heard:?}"
        );
        assert_eq!(self.line(&ours.name).await, (1, 0));
        let released = self.session.release(&ours, 1).await.expect("released");
        assert_eq!(released, Release::Released);
    }

    /// A writer that becomes a reader.
    async fn downgrade(&self, way: Way, messages: u64) {
        self.warm().await;
        let name = format!("downgrade:{way:?}:{messages}");
        let (mut ours, theirs) = (claim(&name, Mode::Write), claim(&name, Mode::Read));
        let fence = hold(&self.session, &ours).await;
        wait(&self.other, &theirs).await;
        Arc::make_mut(&mut ours).mode = Mode::Read;
        self.proxy.after(way, messages, Fate::Reset);
        let answer = self.session.claim(&ours).await;
        self.proxy.set_both(Fate::Pass);
        let line = self.line(&ours.name).await;
        match &answer {
            Ok(Standing::Held(held)) => assert_eq!((line, held.fence.get()), ((2, 0), fence)),
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.may_have_happened() => assert_ne!(line, (1, 0)),
            Err(error) => assert_eq!(line, (1, 1), "{error}"),
        }
        let _ = self.session.release(&ours, 1).await;
        assert_eq!(self.line(&ours.name).await, (1, 0), "{answer:?}");
    }

    /// An eviction: of the holder, and of no later one, and as many as it says.
    async fn evict(&self, way: Way, messages: u64) {
        self.warm().await;
        let name = format!("evict:{way:?}:{messages}");
        let (first, next) = (claim(&name, Mode::Mutex), claim(&name, Mode::Mutex));
        let _ = hold(&self.other, &first).await;
        wait(&self.other, &next).await;
        self.proxy.after(way, messages, Fate::Reset);
        let by = Identity::new("host", 7, "command");
        let answer = self.engine.evict(&first.name, None, &by, "a reason").await;
        self.proxy.set_both(Fate::Pass);
        let line = self.line(&first.name).await;
        match &answer {
            Ok(count) => assert_eq!((*count, line), (1, (1, 0)), "{name}"),
            Err(error) if error.may_have_happened() => assert_ne!(line, (0, 0), "{name}"),
            Err(error) => assert_eq!(line, (1, 1), "{name}: {error}"),
        }
        let still = self.other.claim(&next).await;
        assert!(!matches!(still, Ok(Standing::Gone)), "{still:?}");
        for claim in [&first, &next] {
            let _ = self.other.release(claim, 1).await;
        }
    }

    /// A look is a look.
    async fn inspect(&self, way: Way, messages: u64) {
        self.warm().await;
        let name = format!("inspect:{way:?}:{messages}");
        let ours = claim(&name, Mode::Mutex);
        let _ = hold(&self.other, &ours).await;
        self.proxy.after(way, messages, Fate::Reset);
        let answer = self.engine.inspect(&Query::name(ours.name.clone())).await;
        self.proxy.set_both(Fate::Pass);
        match answer {
            Ok(lines) => assert_eq!(lines.len(), 1),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        assert_eq!(self.line(&ours.name).await, (1, 0));
        let _ = self.other.release(&ours, 1).await.expect("released");
    }

    async fn all(&self) {
        for way in [Way::ToServer, Way::ToClient] {
            for messages in 0..MESSAGES {
                for crowd in [false, true] {
                    self.claim(way, messages, crowd).await;
                    self.release(way, messages, crowd).await;
                }
                self.heartbeat(way, messages).await;
                self.downgrade(way, messages).await;
                self.evict(way, messages).await;
                self.inspect(way, messages).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers() {
    let server = Postgres::start();
    let cut = Cut::new(|port| server.url_by(port), server.port).await;
    cut.all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_answers() {
    let server = MariaDb::start();
    let cut = Cut::new(|port| server.url_by(port), server.port).await;
    cut.all().await;
}
