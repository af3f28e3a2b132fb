//! The network before a database: silent in either direction, and slow.

use std::sync::Arc;
use std::time::Duration;

use super::lockers::{fence, locker};
use leasehold::conformance::raw::heartbeat;
use leasehold::engine::{
    Claim, Clock, Engine, Identity, Inbox, Mode, Query, Release, Session, Sql, Standing, Url,
};
use leasehold::{ConnectOptions, Name};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::certificates::certificates;
use leasehold_testkit::servers::database::Setup;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use sha2::{Digest, Sha256};

/// Longer than a call takes that gives up one answer, and then one connection, after a second each.
const LEASE_MS: u32 = 3_000;

/// A holder whose connections fall silent one way is told in time, nothing of it hangs, the lock passes on after the
/// lease, and once the network is back the process works again.
fn falls_silent(url: &dyn Fn(u16) -> String, port: u16, way: Way) {
    let proxy = Proxy::before(port);
    let mut holder = locker(&format!("{}?timeout=1", url(proxy.port)), LEASE_MS);
    let mut other = locker(&url(port), LEASE_MS);
    let first = fence(&holder.ask("lock silent"));
    let clock = Clock::boot();
    let before = clock.now();
    proxy.set(way, Fate::Hold);
    let told = holder.ask("lost silent");
    let took = Duration::from_micros(clock.now() - before);
    assert!(told.starts_with("lost"), "{told}");
    assert!(
        took < Duration::from_millis(LEASE_MS.into()) * 5 / 4,
        "{way:?}: told after {took:?}"
    );
    let asked = holder.ask("try other");
    assert!(asked.starts_with("error unavailable"), "{way:?}: {asked}");
    assert!(fence(&other.ask("lock silent")) > first, "{way:?}");
    proxy.set_both(Fate::Pass);
    assert_eq!(other.ask("release silent"), "Released");
    let again = leasehold_testkit::poll::until("the process is back", || {
        let answer = holder.ask("try silent");
        answer
            .starts_with("held")
            .then_some(answer.clone())
            .ok_or(answer)
    });
    assert!(fence(&again) > first, "{way:?}");
    assert_eq!(holder.ask("release silent"), "Released");
}

#[test]
fn postgres_behind_a_silent_network() {
    let server = Postgres::start();
    for way in [Way::ToServer, Way::ToClient] {
        falls_silent(&|port| server.url_by(port), server.port, way);
    }
}

#[test]
fn mariadb_behind_a_silent_network() {
    let server = MariaDb::start();
    for way in [Way::ToServer, Way::ToClient] {
        falls_silent(&|port| server.url_by(port), server.port, way);
    }
}

/// A client falls silent at each message of a claim that joins a line, so also while its transaction has locked the row:
/// the holder's release waits for less than two seconds.
async fn silent_in_a_transaction(url: &(dyn Fn(u16) -> String + Sync), port: u16) {
    let direct = ConnectOptions::new()
        .connect(&url(port))
        .await
        .expect("connected");
    let mut longest = Duration::ZERO;
    for messages in 0..4 {
        let (proxy, name) = (Proxy::before(port), format!("row:{messages}"));
        let far = ConnectOptions::new().connect(&url(proxy.port)).await;
        let far = far.expect("connected").mutex(&name).strict();
        let guard = direct.mutex(&name).lock().await.expect("locked");
        let key = &Sha256::digest(name.as_bytes())[..16];
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let words = [key.to_vec(), hex.into_bytes()];
        proxy.after_words(&words, Way::ToServer, messages, Fate::Hold);
        let waits = tokio::spawn(async move { far.lock().await.map(drop) });
        let query = Query::name(Name::new(&name).expect("a name"));
        eventually("it is silent, or in line", async || {
            let lines = direct.inspect(&query).await.expect("seen");
            let in_line = lines.iter().any(|line| !line.waiters.is_empty());
            (in_line || !proxy.is_armed())
                .then_some(())
                .ok_or(format!("{lines:?}"))
        })
        .await;
        let clock = Clock::boot();
        let before = clock.now();
        let _ = guard.release().await.expect("released");
        longest = longest.max(Duration::from_micros(clock.now() - before));
        waits.abort();
    }
    println!("the row was locked for up to {longest:?}");
    assert!(longest > Duration::from_millis(500), "it was never locked");
    assert!(longest < Duration::from_secs(2), "locked for {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_with_a_client_silent_in_a_transaction() {
    let server = Postgres::start();
    silent_in_a_transaction(&|port| server.url_by(port), server.port).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_with_a_client_silent_in_a_transaction() {
    let server = MariaDb::start();
    silent_in_a_transaction(&|port| server.url_by(port), server.port).await;
}

/// A packet takes this long to the server; one round trip takes a little more, never twice as long.
const DELAY: Duration = Duration::from_millis(200);

async fn round_trips(what: &str, wanted: u32, call: impl Future<Output = ()>) {
    let clock = Clock::boot();
    let before = clock.now();
    call.await;
    let took = Duration::from_micros(clock.now() - before);
    println!(
        "{what}: {:.2} round trips",
        took.as_secs_f64() / DELAY.as_secs_f64()
    );
    assert!(
        took >= DELAY * wanted && took < DELAY * (wanted + 1),
        "{what} took {took:?}, {wanted} round trips of {DELAY:?} were expected"
    );
}

async fn session(engine: &Sql) -> Arc<dyn Session> {
    let who = Identity::of_this_process();
    let opened = engine.open(&who, Inbox::new(|_| {})).await;
    opened.expect("a session")
}

fn claim(name: &str) -> Arc<Claim> {
    let name = Name::new(name).expect("a name");
    Arc::new(Claim::new(name, Mode::Mutex, Duration::from_secs(60)))
}

async fn held(session: &Arc<dyn Session>, claim: &Claim) {
    let standing = session.claim(claim).await.expect("claimed");
    assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
}

async fn released(session: &Arc<dyn Session>, claim: &Claim) {
    let release = session.release(claim, 1).await.expect("released");
    assert_eq!(release, Release::Released);
}

/// Counted on a connection that has been used: a claim is one round trip, its release is one, and so is the heartbeat
/// of many claims.
async fn counts(url: &str, proxy: &Proxy) {
    let engine = Sql::from_url(&Url::parse(url).expect("a URL")).expect("an engine");
    let session = session(&engine).await;
    let claims: Vec<_> = (0..40).map(|n| claim(&format!("many:{n}"))).collect();
    for claim in &claims {
        held(&session, claim).await;
    }
    // The statement for a name that was used before, and the connection of the heartbeats.
    for claim in &claims[..20] {
        released(&session, claim).await;
        held(&session, claim).await;
    }
    let _ = heartbeat(&*session, &claims).await;
    proxy.set(Way::ToServer, Fate::Delay(DELAY));
    let new = claim("new");
    round_trips("claim of a new name", 1, held(&session, &new)).await;
    round_trips("release", 1, released(&session, &new)).await;
    round_trips("claim of a used name", 1, held(&session, &new)).await;
    round_trips("heartbeat of 40", 1, async {
        let standings = heartbeat(&*session, &claims).await;
        let all = standings.iter().all(|s| matches!(s, Standing::Held(_)));
        assert!(all, "{standings:?}");
    })
    .await;
    proxy.set(Way::ToServer, Fate::Pass);
    session.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_round_trips() {
    let server = Postgres::start();
    let proxy = Proxy::before(server.port);
    counts(&server.url_by(proxy.port), &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_round_trips() {
    let server = MariaDb::start();
    let proxy = Proxy::before(server.port);
    counts(&server.url_by(proxy.port), &proxy).await;
}

/// Only servers of the trusted authority are taken, and every byte is encrypted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_by_tls() {
    let server = Postgres::set_up(&TLS);
    encrypted(&server.url()).await;
    let seen = server.sql(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'leasehold' AND NOT ssl",
    );
    assert_eq!(seen, "0", "connections in the clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_by_tls() {
    let server = MariaDb::set_up(&TLS);
    let accepted = || -> u32 {
        let counter = server.sql("SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'");
        let count = counter.split_whitespace().last();
        count
            .and_then(|count| count.parse().ok())
            .expect("a number")
    };
    let before = accepted();
    encrypted(&server.url()).await;
    assert!(accepted() > before, "no connection used TLS");
}

const TLS: Setup<'_> = Setup {
    settings: &[],
    clock: false,
    tls: true,
    disk: None,
};

async fn encrypted(url: &str) {
    let client = leasehold::connect(url).await.expect("trusted");
    let guard = client.mutex("x").lock().await.expect("locked");
    let _ = guard.release().await.expect("released");
    // Another authority of the same name, and the public ones.
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path());
    let (bare, _) = url.split_once('?').expect("options");
    let other = format!("{bare}?sslrootcert={}", dir.path().join("ca.crt").display());
    for untrusted in [other, format!("{bare}?sslmode=verify-full")] {
        let refused = ConnectOptions::new().connect(&untrusted).await;
        let error = refused.expect_err("not trusted").to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        assert!(!error.contains("may have happened"), "{error}");
    }
}
