//! Messages that were forged by a user who may read keys and publish, and do nothing else.

use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Redis as Engine, Url};
use leasehold::{Client, ConnectOptions, Guard, GuardState};
use leasehold_testkit::servers::redis::Redis;

const LEASE: Duration = Duration::from_millis(1_500);

/// A server, a client, and the user who forges.
struct Scene {
    server: Redis,
    client: Client,
    subject: Subject,
    spy: redis::Connection,
}

/// A claim as the spy finds it.
struct Seen {
    id: String,
    session: String,
    holds: bool,
}

impl Scene {
    async fn new(options: &str) -> Self {
        let server = Redis::start();
        let rule = "ACL SETUSER spy on >x resetchannels &lh:* ~lh:* +@read +publish -@write";
        assert_eq!(server.cli(rule).trim(), "OK");
        let spy = redis::Client::open(format!("redis://spy:x@127.0.0.1:{}", server.port));
        let spy = spy.expect("a URL").get_connection().expect("connected");
        let url = format!("{}?{options}", server.url());
        let connected = ConnectOptions::new().lease(LEASE).connect(&url).await;
        let engine = Engine::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
        Self {
            server,
            client: connected.expect("connected"),
            subject: Subject::new(engine),
            spy,
        }
    }

    /// The claims on a name, from its hash: the numbers of a claim are five doubles, then comes its session.
    fn claims(&mut self, name: &str) -> Vec<Seen> {
        let keys = self.server.cli("KEYS lh:{??}:*");
        let key = keys.lines().find(|key| key.ends_with(name));
        let key = key.expect("the line is there").to_owned();
        let found: Vec<(Vec<u8>, Vec<u8>)> = redis::cmd("HGETALL")
            .arg(key)
            .query(&mut self.spy)
            .unwrap_or_default();
        let claims = found.into_iter().filter(|(field, _)| field[0] == b'=');
        let claim = |(field, text): (Vec<u8>, Vec<u8>)| Seen {
            id: String::from_utf8(field[1..].to_vec()).expect("an id"),
            session: String::from_utf8_lossy(&text[40..])
                .split('\0')
                .next()
                .expect("a session")
                .to_owned(),
            holds: text[32..40] != [0; 8],
        };
        claims.map(claim).collect()
    }

    /// Publishes to the process of a claim, which has heard it once this has returned.
    async fn forge(&mut self, letter: &str, of: &Seen, rest: &str) {
        let channel = format!("lh:!{}", of.session.split('.').next().expect("a process"));
        let message = format!("{letter} {} {}{rest}", of.id, of.session);
        let heard: i64 = redis::cmd("PUBLISH")
            .arg(channel)
            .arg(message)
            .query(&mut self.spy)
            .expect("allowed");
        assert_eq!(heard, 1);
        // Two calls on the connection that the message came by: its answer, and that of whatever the message caused.
        for _ in 0..2 {
            let other = self.client.mutex(fresh_name()).lock().await;
            let _ = other.expect("free").release().await.expect("released");
        }
    }

    /// A holder, a waiter, and both as the spy sees them.
    async fn contended(
        &mut self,
    ) -> (
        String,
        Guard,
        tokio::task::JoinHandle<leasehold::Result<Guard>>,
        [Seen; 2],
    ) {
        let name = fresh_name();
        let strict = self.client.mutex(&name).strict();
        let guard = strict.lock().await.expect("free");
        let waiter = tokio::spawn(async move { strict.lock().await });
        let s = self.subject.clone();
        let seen = s
            .eventually("it waits", async || {
                let mut seen = self.claims(&name);
                seen.sort_by_key(|claim| !claim.holds);
                <[Seen; 2]>::try_from(seen).map_err(|seen| format!("{} claims", seen.len()))
            })
            .await;
        (name, guard, waiter, seen)
    }
}

/// The guard is renewed twice, and still valid.
async fn goes_on(scene: &Scene, guard: &Guard) {
    for _ in 0..2 {
        let before = guard.deadline();
        let renewed = async || match guard.deadline() > before {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        };
        scene.subject.eventually("it is renewed", renewed).await;
    }
    assert_eq!(guard.state(), GuardState::Valid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_grant_with_an_impossible_fence_is_not_believed() {
    let mut scene = Scene::new("").await;
    let (_, guard, waiter, [_, waits]) = scene.contended().await;
    for fence in [
        i64::MAX as u64,
        1 << 53,
        guard.fence().get() + 3_600_000_000,
    ] {
        scene.forge("G", &waits, &format!(" {fence} 0")).await;
        assert!(!waiter.is_finished(), "{fence} was believed");
    }
    goes_on(&scene, &guard).await;
    assert!(!waiter.is_finished());
    let first = guard.fence();
    let _ = guard.release().await.expect("released");
    let next = scene.subject.soon("the waiter is granted", waiter).await;
    let next = next.expect("joined").expect("granted").fence();
    let most = first.get() + 60_000_000;
    assert!(next > first && next.get() < most, "{next} after {first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_confirm_no_forged_grant_is_believed() {
    let mut scene = Scene::new("confirm=1").await;
    let (_, guard, waiter, [_, waits]) = scene.contended().await;
    let likely = guard.fence().get() + 1_000;
    scene.forge("G", &waits, &format!(" {likely} 0")).await;
    goes_on(&scene, &guard).await;
    assert!(!waiter.is_finished(), "exclusion is kept");
    let _ = guard.release().await.expect("released");
    let next = scene.subject.soon("the waiter is granted", waiter).await;
    drop(next.expect("joined").expect("granted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_end_takes_no_guard_and_a_true_one_is_told_at_once() {
    let mut scene = Scene::new("").await;
    let (name, guard, waiter, [holds, waits]) = scene.contended().await;
    for of in [&holds, &waits] {
        scene.forge("E", of, " mallory because").await;
        scene.forge("X", of, "").await;
        scene.forge("W", of, "").await;
    }
    goes_on(&scene, &guard).await;
    assert!(!waiter.is_finished(), "it waits on");
    let evicted = scene.client.evict(&name, "a test").await;
    assert_eq!(evicted.expect("allowed"), 1);
    let lost = tokio::time::timeout(LEASE / 3, guard.lost()).await;
    let why = lost.expect("told, not found out").to_string();
    assert!(why.contains("a test"), "{why}");
    let next = scene.subject.soon("the waiter is granted", waiter).await;
    drop(next.expect("joined").expect("granted"));
}
