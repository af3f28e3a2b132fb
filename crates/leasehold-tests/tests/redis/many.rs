//! Ten thousand of everything: waiters of one name, names held at once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold::Name;
use leasehold::conformance::raw::heartbeat;
use leasehold::engine::{
    Claim, Clock, Engine as _, Event, Identity, Inbox, Mode, Query, Redis as Engine, Release,
    Session, Standing, Url,
};
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::redis::Redis;
use tokio::task::JoinSet;

const MANY: usize = 10_000;
const LEASE: Duration = Duration::from_secs(120);

async fn session(server: &Redis) -> (Arc<dyn Session>, Receiver<Event>) {
    let engine = Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("an engine");
    let (tell, told) = channel();
    let inbox = Inbox::new(move |event| drop(tell.send(event)));
    let opened = engine.open(&Identity::of_this_process(), inbox).await;
    (opened.expect("a session opens"), told)
}

fn claim(name: &str) -> Arc<Claim> {
    Arc::new(Claim::new(
        Name::new(name).expect("a name"),
        Mode::Mutex,
        LEASE,
    ))
}

/// How often a command was called, by a client or by a script.
fn calls(server: &Redis, command: &str) -> u64 {
    let stats = server.cli("INFO commandstats");
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

/// Commands of all kinds, but for those that a connection sends once in a while to see whether the server is there.
fn all_calls(server: &Redis) -> u64 {
    let stats = server.cli("INFO commandstats");
    let lines = stats
        .lines()
        .filter(|line| !line.starts_with("cmdstat_ping:"));
    let counts = lines.filter_map(|line| {
        line.split_once(":calls=")?
            .1
            .split(',')
            .next()?
            .parse::<u64>()
            .ok()
    });
    counts.sum()
}

/// Claims all of these, many at the same time.
async fn claim_all(session: &Arc<dyn Session>, claims: &[Arc<Claim>]) {
    for some in claims.chunks(500) {
        let mut asked = JoinSet::new();
        for claim in some {
            let (session, claim) = (session.clone(), claim.clone());
            let _ = asked.spawn(async move { session.claim(&claim).await });
        }
        while let Some(standing) = asked.join_next().await {
            let standing = standing.expect("joined").expect("claimed");
            assert!(
                matches!(standing, Standing::Held(_) | Standing::Waiting { .. }),
                "{standing:?}"
            );
        }
    }
}

fn granted(told: &Receiver<Event>) -> leasehold::engine::ClaimId {
    loop {
        match told
            .recv_timeout(Duration::from_secs(30))
            .expect("the next is told")
        {
            Event::Granted(claim, _) => return claim,
            _ => continue,
        }
    }
}

/// Passes a lock down a line of waiters; the commands of the last ten hand-overs, and of all.
async fn hand_over(server: &Redis, waiters: usize, hand_overs: usize) -> (u64, u64) {
    let (session, told) = session(server).await;
    let name = format!("line of {waiters}");
    let first = claim(&name);
    let _ = session.claim(&first).await.expect("free");
    let mut claims: Vec<_> = (0..waiters).map(|_| claim(&name)).collect();
    claim_all(&session, &claims).await;
    claims.push(first.clone());
    let mut holder = first;
    let (before, clients) = (all_calls(server), calls(server, "evalsha"));
    for _ in 0..hand_overs {
        assert_eq!(
            session.release(&holder, 1).await.expect("released"),
            Release::Released
        );
        let next = granted(&told);
        holder = claims
            .iter()
            .find(|claim| claim.id == next)
            .expect("one of ours")
            .clone();
    }
    let clients = calls(server, "evalsha") - clients;
    let all = all_calls(server) - before;
    session.close().await.expect("closed");
    (clients, all)
}

/// A name's counter stays until the clock has passed its last fence, and nothing else.
fn leaves_nothing(server: &Redis) {
    until("closing leaves nothing", || match server.cli("DBSIZE") {
        left if left.trim() == "0" => Ok(()),
        _ => Err(server.cli("KEYS *")),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_however_many_wait() {
    let server = Redis::start();
    let few = hand_over(&server, 20, 10).await;
    let clock = Clock::boot();
    let before = clock.now();
    let many = hand_over(&server, MANY, 10).await;
    println!(
        "10 hand-overs: {} calls and {} commands in all with 20 waiters, {} and {} with {MANY}; all in {:?}",
        few.0,
        few.1,
        many.0,
        many.1,
        Duration::from_micros(clock.now() - before)
    );
    assert_eq!(few.0, 10, "one call a hand-over");
    assert_eq!(many, few);
    leaves_nothing(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_all_served_in_order() {
    let server = Redis::start();
    let (session, told) = session(&server).await;
    let claims: Vec<_> = (0..MANY).map(|_| claim("x")).collect();
    for claim in &claims[..100] {
        let _ = session.claim(claim).await.expect("claimed");
    }
    claim_all(&session, &claims[100..]).await;
    let mut last = claims[0].clone();
    for at in 1..MANY {
        assert_eq!(
            session.release(&last, 1).await.expect("released"),
            Release::Released
        );
        let next = granted(&told);
        if at < 100 {
            assert_eq!(next, claims[at].id, "in order of arrival");
        }
        last = claims
            .iter()
            .find(|claim| claim.id == next)
            .expect("one of ours")
            .clone();
    }
    assert_eq!(
        session.release(&last, 1).await.expect("released"),
        Release::Released
    );
    session.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_held_locks_are_renewed_in_few_calls() {
    let server = Redis::start();
    let (session, _told) = session(&server).await;
    let claims: Vec<_> = (0..MANY).map(|at| claim(&format!("name {at}"))).collect();
    claim_all(&session, &claims).await;
    let (before, clock) = (calls(&server, "evalsha"), Clock::boot());
    let start = clock.now();
    let standings = heartbeat(&*session, &claims).await;
    let took = Duration::from_micros(clock.now() - start);
    let spent = calls(&server, "evalsha") - before;
    println!("{MANY} locks renewed in {spent} calls and {took:?}");
    assert!(
        standings
            .iter()
            .all(|standing| matches!(standing, Standing::Held(_)))
    );
    assert!(spent <= 400, "{spent} calls");
    session.close().await.expect("closed");
    leaves_nothing(&server);
}

/// A page of claims, and what a call ends or grants at most.
const PAGE: usize = 500;

fn reader(name: &str, mode: Mode, lease: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(Name::new(name).expect("a name"), mode, lease))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_readers_is_granted_in_pieces_and_shown_in_pages() {
    let server = Redis::start();
    let (session, told) = session(&server).await;
    let writer = reader("x", Mode::Write, LEASE);
    let _ = session.claim(&writer).await.expect("free");
    let readers: Vec<_> = (0..PAGE * 3)
        .map(|_| reader("x", Mode::Read, LEASE))
        .collect();
    claim_all(&session, &readers).await;
    let engine = Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("an engine");
    for query in [Query::all(), Query::name(writer.name.clone())] {
        let lines = engine.inspect(&query).await.expect("shown");
        let counts = (lines[0].holders.len(), lines[0].waiters.len());
        assert_eq!(counts, (1, readers.len()));
    }
    let before = calls(&server, "evalsha");
    let _ = session.release(&writer, 1).await.expect("released");
    let grants: std::collections::BTreeSet<_> = readers.iter().map(|_| granted(&told)).collect();
    assert_eq!(grants.len(), readers.len(), "each once");
    let calls = calls(&server, "evalsha") - before;
    assert!((4..=5).contains(&calls), "{calls} calls");
    session.close().await.expect("closed");
    leaves_nothing(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_died_is_swept_in_pieces() {
    let server = Redis::with_clock();
    let (session, told) = session(&server).await;
    let writer = reader("x", Mode::Write, LEASE);
    let _ = session.claim(&writer).await.expect("free");
    let short = Duration::from_secs(30);
    let dead: Vec<_> = (0..PAGE * 3)
        .map(|_| reader("x", Mode::Read, short))
        .collect();
    claim_all(&session, &dead).await;
    let last = reader("x", Mode::Read, LEASE);
    let _ = session.claim(&last).await.expect("waits");
    server.step(40);
    let before = calls(&server, "evalsha");
    let _ = session.release(&writer, 1).await.expect("released");
    assert_eq!(granted(&told), last.id, "the only one that is alive");
    let calls = calls(&server, "evalsha") - before;
    assert!(calls >= 4, "{calls} calls");
    session.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_has_an_end() {
    let server = Redis::start();
    let (session, _told) = session(&server).await;
    let claims: Vec<_> = (0..20_000).map(|_| claim("x")).collect();
    claim_all(&session, &claims).await;
    let refused = session.claim(&claim("x")).await.expect_err("one too many");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    assert!(!refused.may_have_happened(), "{refused}");
    let _ = session
        .claim(&claims[7])
        .await
        .expect("it is there already");
    session.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_were_refused_are_not_kept() {
    let server = Redis::start();
    let (session, _told) = session(&server).await;
    assert_eq!(server.cli("CONFIG SET maxmemory 1").trim(), "OK");
    for at in 0..200 {
        let refused = session.claim(&claim(&format!("name {at}"))).await;
        let refused = refused.expect_err("no memory");
        assert!(!refused.may_have_happened(), "{refused}");
    }
    let before = calls(&server, "evalsha");
    session.close().await.expect("closed");
    let spent = calls(&server, "evalsha") - before;
    assert_eq!(spent, 0, "calls to give back what was never there");
}
