//! The connection is cut at every message of every operation, in both directions: the answer is true, no other claim is
//! touched, and nothing stays.

use std::sync::{Arc, Mutex};

use leasehold::engine::{
    Claim, Engine, Etcd as EtcdEngine, Event, Identity, Inbox, Mode, Release, Session, Standing,
    Url,
};

use super::*;

/// More messages than any operation has.
const MOST: u64 = 60;

const MODES: [Mode; 4] = [
    Mode::Mutex,
    Mode::Read,
    Mode::Write,
    Mode::Permits { count: 2, of: 3 },
];

/// An engine and its session behind a proxy, and a client that is not.
struct Bench {
    _server: Etcd,
    proxy: Proxy,
    engine: EtcdEngine,
    session: Arc<dyn Session>,
    direct: Client,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    async fn new() -> Self {
        let server = Etcd::start();
        let proxy = Proxy::before(server.port());
        let url = format!("etcd://127.0.0.1:{}?prefix=locks/", proxy.port);
        let engine = EtcdEngine::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
        let engine = engine.lease(LONG);
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let inbox = Inbox::new(move |event| told.lock().expect("no panic").push(event));
        let session = engine.open(&Identity::of_this_process(), inbox).await;
        Self {
            direct: patient(&server.url(), LONG).await,
            session: session.expect("opened"),
            _server: server,
            proxy,
            engine,
            events,
        }
    }

    /// Cuts the connection at each message of what `run` does, one after the other, until there are no more. `run` gets a
    /// fresh name, and prepares with `ready` what is not to be cut.
    async fn at_every_message(&self, what: &str, mut run: impl AsyncFnMut(&str, Cut<'_>)) {
        let mut cuts = 0;
        for way in [Way::ToClient, Way::ToServer] {
            for message in 0..MOST {
                let name = format!("{what}-{}-{message}", way as usize);
                run(&name, Cut(&self.proxy, way, message)).await;
                let cut = !self.proxy.is_planned();
                self.proxy.set_both(Fate::Pass);
                line(&self.direct, &name, 0, 0).await;
                if !cut {
                    break;
                }
                assert!(message + 1 < MOST, "{what}: more messages than expected");
                cuts += 1;
            }
        }
        assert!(cuts >= 2, "{what}: cut {cuts} times");
    }

    fn claim(name: &str, mode: Mode) -> Claim {
        Claim::new(Name::new(name).expect("a name"), mode, LONG)
    }

    async fn take(&self, name: &str, mode: Mode) -> Claim {
        let claim = Self::claim(name, mode);
        let standing = soon("claimed", self.session.claim(&claim)).await;
        let standing = standing.expect("claimed");
        assert!(
            matches!(standing, Standing::Held(_)),
            "{name}: {standing:?}"
        );
        claim
    }

    async fn release(&self, claim: &Claim) -> Release {
        let released = soon("released", self.session.release(claim, 1)).await;
        released.expect("released")
    }

    /// Where claims stand, as a heartbeat tells; an error names none of them.
    async fn beat(&self, claims: &[&Claim]) -> Vec<Option<Standing>> {
        let told = Mutex::new(vec![None; claims.len()]);
        let heard = |claim: &Claim, standing| {
            let at = claims.iter().position(|other| other.id == claim.id);
            told.lock().expect("no panic")[at.expect("asked for")] = Some(standing);
        };
        let all: Vec<_> = claims
            .iter()
            .map(|claim| Arc::new((*claim).clone()))
            .collect();
        let _ = soon("a heartbeat", self.session.heartbeat(&all, &heard)).await;
        told.into_inner().expect("no panic")
    }

    /// Nothing ended that was not released.
    fn nothing_ended(&self) {
        let events = self.events.lock().expect("no panic");
        let ended = events
            .iter()
            .find(|event| matches!(event, Event::Ended(..)));
        assert_eq!(ended, None);
    }
}

/// Where to cut.
#[derive(Clone, Copy)]
struct Cut<'a>(&'a Proxy, Way, u64);

impl Cut<'_> {
    fn arm(self) {
        self.0.after(self.1, self.2, Fate::Reset);
    }
}

/// A claim of every kind on a name that was never used: it holds, with one place in the line, and a release frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim() {
    let bench = Bench::new().await;
    for (at, mode) in MODES.into_iter().enumerate() {
        let what = format!("claim-{at}");
        bench
            .at_every_message(&what, async |name, cut| {
                cut.arm();
                let claim = bench.take(name, mode).await;
                line(&bench.direct, name, 1, 0).await;
                match mode {
                    Mode::Mutex => drop(waiter(&bench.direct, name)),
                    Mode::Permits { of, .. } => {
                        let semaphore = bench.direct.semaphore(name, of);
                        let two = semaphore.try_acquire_many(2).await.expect("a try");
                        assert!(two.is_none(), "four of three");
                        drop(
                            semaphore
                                .try_acquire()
                                .await
                                .expect("a try")
                                .expect("one is left"),
                        );
                    }
                    _ => {
                        let other = bench.direct.rwlock(name);
                        assert!(other.try_write().await.expect("a try").is_none());
                        let reader = other.try_read().await.expect("a try");
                        assert_eq!(reader.is_some(), mode == Mode::Read);
                    }
                }
                assert_eq!(bench.release(&claim).await, Release::Released);
            })
            .await;
    }
    bench.nothing_ended();
}

/// A try that finds no room is busy, and has no place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try() {
    let bench = Bench::new().await;
    bench
        .at_every_message("try", async |name, cut| {
            let held = bench.direct.mutex(name).lock().await.expect("free");
            cut.arm();
            let tried = Bench::claim(name, Mode::Mutex).tries();
            let standing = soon("tried", bench.session.claim(&tried)).await;
            assert_eq!(standing.expect("an answer"), Standing::Busy);
            line(&bench.direct, name, 1, 0).await;
            assert_eq!(held.release().await.expect("released"), Released::Released);
        })
        .await;
}

/// A claim that waits is granted when its turn comes, and before that it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait() {
    let bench = Bench::new().await;
    bench
        .at_every_message("wait", async |name, cut| {
            let held = bench.direct.mutex(name).lock().await.expect("free");
            let waits = Bench::claim(name, Mode::Mutex);
            cut.arm();
            let standing = soon("claimed", bench.session.claim(&waits)).await;
            let standing = standing.expect("an answer");
            assert!(matches!(standing, Standing::Waiting { ahead: 1, .. }), "{standing:?}");
            line(&bench.direct, name, 1, 1).await;
            let fence = held.fence();
            assert_eq!(held.release().await.expect("released"), Released::Released);
            let granted = |event: &Event| matches!(event, Event::Granted(id, held) if *id == waits.id && held.fence > fence);
            until("granted", async || {
                match bench.events.lock().expect("no panic").iter().any(granted) {
                    true => Ok(()),
                    false => Err("not yet".to_owned()),
                }
            })
            .await;
            assert_eq!(bench.release(&waits).await, Release::Released);
        })
        .await;
    bench.nothing_ended();
}

/// A heartbeat names a claim as it stands, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat() {
    let bench = Bench::new().await;
    bench
        .at_every_message("beat", async |name, cut| {
            let holds = bench.take(name, Mode::Mutex).await;
            let waits = Bench::claim(name, Mode::Mutex);
            let _ = bench.session.claim(&waits).await.expect("waits");
            let (gone, held) = (Bench::claim(name, Mode::Mutex), bench.beat(&[&holds]).await);
            cut.arm();
            let told = bench.beat(&[&holds, &waits, &gone]).await;
            let [one, two, three] = told[..] else {
                panic!("three claims: {told:?}")
            };
            let same = |one: Option<Standing>| match (one, held[0]) {
                (Some(Standing::Held(now)), Some(Standing::Held(then))) => now.fence == then.fence,
                (now, _) => now.is_none(),
            };
            assert!(same(one), "{one:?}");
            assert!(
                matches!(two, None | Some(Standing::Waiting { ahead: 1, .. })),
                "{two:?}"
            );
            assert_eq!(three, Some(Standing::Gone));
            line(&bench.direct, name, 1, 1).await;
            assert_eq!(bench.release(&waits).await, Release::Released);
            assert_eq!(bench.release(&holds).await, Release::Released);
        })
        .await;
    bench.nothing_ended();
}

/// A release is done and says so; the claim behind it is granted, and the session's other claims are untouched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release() {
    let bench = Bench::new().await;
    let other = bench.take("other", Mode::Mutex).await;
    for (at, mode) in MODES.into_iter().enumerate() {
        let what = format!("release-{at}");
        bench
            .at_every_message(&what, async |name, cut| {
                let claim = bench.take(name, mode).await;
                cut.arm();
                assert_eq!(bench.release(&claim).await, Release::Released);
                line(&bench.direct, name, 0, 0).await;
                assert_eq!(bench.release(&claim).await, Release::Gone);
            })
            .await;
    }
    assert_eq!(bench.release(&other).await, Release::Released);
    bench.nothing_ended();
}

/// A writer becomes a reader in its place, with its fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade() {
    let bench = Bench::new().await;
    bench
        .at_every_message("downgrade", async |name, cut| {
            let mut claim = bench.take(name, Mode::Write).await;
            let before = bench.beat(&[&claim]).await[0];
            claim.mode = Mode::Read;
            cut.arm();
            let after = soon("downgraded", bench.session.claim(&claim)).await;
            match (before, after.expect("an answer")) {
                (Some(Standing::Held(before)), Standing::Held(after)) => {
                    assert_eq!(before.fence, after.fence);
                }
                other => panic!("{other:?}"),
            }
            let other = bench.direct.rwlock(name);
            assert!(other.try_write().await.expect("a try").is_none());
            drop(other.try_read().await.expect("a try").expect("shared"));
            line(&bench.direct, name, 1, 0).await;
            assert_eq!(bench.release(&claim).await, Release::Released);
        })
        .await;
    bench.nothing_ended();
}

/// An eviction ends the holder that was meant, and not the next one; the claim behind it is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_eviction() {
    let bench = Bench::new().await;
    let me = Identity::of_this_process();
    let second = patient(&bench._server.url(), LONG).await;
    bench
        .at_every_message("evict", async |name, cut| {
            let held = bench.direct.mutex(name).lock().await.expect("free");
            let next = waiter(&second, name);
            line(&bench.direct, name, 1, 1).await;
            let meant = held.name().clone();
            cut.arm();
            let evicted = bench.engine.evict(&meant, None, &me, "a test");
            assert_eq!(soon("evicted", evicted).await.expect("an answer"), 1);
            let next = granted(next).await;
            let _ = soon("told", held.lost()).await;
            line(&bench.direct, name, 1, 0).await;
            assert_eq!(next.state(), GuardState::Valid);
            assert_eq!(next.release().await.expect("released"), Released::Released);
        })
        .await;
}

/// An inspection shows the line, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection() {
    let bench = Bench::new().await;
    bench
        .at_every_message("look", async |name, cut| {
            let held = bench
                .direct
                .semaphore(name, 2)
                .acquire()
                .await
                .expect("free");
            let query = Query::name(held.name().clone());
            cut.arm();
            let lines = soon("inspected", bench.engine.inspect(&query)).await;
            let lines = lines.expect("an answer");
            assert_eq!(lines[0].holders[0].fence, Some(held.fence()));
            assert_eq!(held.release().await.expect("released"), Released::Released);
        })
        .await;
}

/// A request to give a lock up reaches its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_give_up() {
    let bench = Bench::new().await;
    let short = client(&bench._server.url()).await;
    bench
        .at_every_message("ask", async |name, cut| {
            let held = short.mutex(name).lock().await.expect("free");
            cut.arm();
            let asked = bench.engine.ask_to_release(held.name(), None);
            assert_eq!(soon("asked", asked).await.expect("an answer"), 1);
            soon("told", held.release_requested()).await;
            assert_eq!(held.release().await.expect("released"), Released::Released);
        })
        .await;
}
