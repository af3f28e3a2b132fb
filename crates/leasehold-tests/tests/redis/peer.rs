//! The server at the other end: it floods, starts, refuses or was cut off.
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Clock, Redis as Engine, Url};
use leasehold::{ConnectOptions, Error, ErrorKind};
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::redis::Redis;

async fn refusal(url: &str) -> Error {
    let connected = tokio::time::timeout(Duration::from_secs(30), leasehold::connect(url)).await;
    connected.expect("an answer in time").expect_err("refused")
}

/// A server that says this first, then that again and again, whatever it is asked; and the most bytes that a connection
/// took.
fn says(first: &'static str, again: String) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let sent = Arc::<AtomicU64>::default();
    let counted = sent.clone();
    drop(std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut stream, counted, again) = (stream, counted.clone(), again.clone());
            drop(std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let (mut sending, mut taken) = (stream.write_all(first.as_bytes()), 0);
                while !again.is_empty() && sending.is_ok() {
                    sending = stream.write_all(again.as_bytes());
                    taken += again.len() as u64;
                    let _ = counted.fetch_max(taken, Ordering::SeqCst);
                }
                // Until the client goes.
                let _ = stream.read_to_end(&mut Vec::new());
            }));
        }
    }));
    (port, sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_floods_is_left_after_one_frame() {
    let text = "a".repeat(64 * 1024);
    for (first, again) in [
        ("$99999999999\r\n", text.clone()),
        ("+", text.clone()),
        ("-", text.clone()),
        ("*999999999\r\n", "_\r\n".repeat(20_000)),
        ("*1000000\r\n", format!("${}\r\n{text}\r\n", text.len())),
        ("%400000\r\n", "*1\r\n*1\r\n_\r\n".repeat(10_000)),
        ("", "*1\r\n".repeat(10_000)),
        ("", "|1\r\n+a\r\n+b\r\n".repeat(10_000)),
        ("", ":1\r\n".repeat(10_000)),
    ] {
        let (port, sent) = says(first, again.clone());
        let error = refusal(&format!("redis://127.0.0.1:{port}?timeout=3000")).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // Bytes on their way fill the buffers of the sockets; the rest has to be taken by the client.
        let sent = sent.load(Ordering::SeqCst) >> 20;
        assert!(sent < 64, "{first:?} {again:.20}: {sent} MiB were read");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_now_is_unavailable() {
    for said in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-BUSY Redis is busy running a script\r\n",
        "",
    ] {
        let (port, _) = says(said, String::new());
        let error = refusal(&format!("redis://127.0.0.1:{port}?timeout=300")).await;
        let shown = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{shown}");
        assert!(shown.contains(&format!("127.0.0.1:{port}")), "{shown}");
        assert!(!error.may_have_happened(), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_server_and_the_remedy() {
    let mut server = Redis::with("--save  --requirepass hunter2");
    let port = server.port;
    for (url, kind, hint) in [
        (
            format!("redis://127.0.0.1:{port}"),
            ErrorKind::Denied,
            "redis://:PASSWORD@HOST",
        ),
        (
            format!("redis://:hunter3@127.0.0.1:{port}"),
            ErrorKind::Denied,
            "password is wrong",
        ),
        (
            format!("redis://:hunter2@127.0.0.1:{port}/99"),
            ErrorKind::Config,
            "no such database",
        ),
        (
            "redis://no-such-host.invalid".to_owned(),
            ErrorKind::Unavailable,
            "no-such-host.invalid:6379",
        ),
    ] {
        let error = refusal(&url).await;
        let shown = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{shown}");
        assert!(shown.contains(hint) && !shown.contains("hunter"), "{shown}");
        let host = shown.contains(&format!("127.0.0.1:{port}")) || url.contains("invalid");
        assert!(host, "{shown}");
    }
    let client = leasehold::connect(&format!("redis://:hunter2@127.0.0.1:{port}")).await;
    let client = client.expect("connected");
    server.kill();
    let error = client
        .mutex("x")
        .try_lock()
        .await
        .expect_err("the server is gone");
    let shown = error.to_string();
    assert!(shown.contains(&format!("127.0.0.1:{port}")), "{shown}");
    let old = Redis::with("--save  --rename-command HELLO NO-HELLO");
    let error = refusal(&old.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("RESP3"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_changes_is_asked_for_again() {
    let server = Redis::with("--save  --requirepass first");
    let password = Arc::new(Mutex::new("first".to_owned()));
    let url = Url::parse(&server.url()).expect("a URL");
    let asked = password.clone();
    let login = move || ("default".to_owned(), asked.lock().expect("whole").clone());
    let engine = Engine::with_login(&url, login).expect("an engine");
    assert!(!format!("{engine:?}").contains("first"));
    let client = ConnectOptions::new()
        .open(Arc::new(engine))
        .await
        .expect("let in");
    drop(client.mutex("x").lock().await.expect("free"));
    "second".clone_into(&mut password.lock().expect("whole"));
    let set = ["-a", "first", "CONFIG", "SET", "requirepass", "second"];
    assert!(server.cli_args(&set).contains("OK"));
    let kill = [
        "-a", "second", "CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal",
    ];
    let kill_listeners = ["-a", "second", "CLIENT", "KILL", "TYPE", "pubsub"];
    let said = [server.cli_args(&kill), server.cli_args(&kill_listeners)];
    let s = Subject::new(Engine::from_url(&url).expect("an engine"));
    let guard = s.eventually("let in again", async || {
        let guard = client
            .mutex("y")
            .try_lock()
            .await
            .map_err(|error| format!("{said:?} {error}"))?;
        guard.ok_or("busy".to_owned())
    });
    drop(guard.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_names_its_process_and_is_kept_alive() {
    let server = Redis::start();
    let _client = leasehold::connect(&server.url()).await.expect("connected");
    let list = server.cli("CLIENT LIST");
    let name = format!("name=leasehold:{}:{}", host(), std::process::id());
    assert!(list.contains(&name), "{name}\n{list}");
    // In the kernel's table a timer of kind 2 is that of keepalive.
    let table = std::fs::read_to_string("/proc/net/tcp").expect("readable");
    let (to, kind) = (format!(":{:04X} 01 ", server.port), " 02:");
    let ours = table
        .lines()
        .find(|line| line.contains(&to) && line.contains(kind));
    assert!(ours.is_some(), "{to}\n{table}");
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.expect("readable").trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_asked_and_one_that_was_cut_is_made_again() {
    let server = Redis::start();
    let proxy = Proxy::before(server.port);
    let url = format!("redis://127.0.0.1:{}?timeout=200", proxy.port);
    let _client = leasehold::connect(&url).await.expect("connected");
    let s =
        Subject::new(Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("one"));
    let count = async |what, seen: &dyn Fn() -> u64, least| {
        s.eventually(what, async || match seen() {
            enough if enough >= least => Ok(()),
            few => Err(format!("{few} of {least}")),
        })
        .await;
    };
    let sent = || proxy.passed(Way::ToServer);
    count("it is asked while idle", &sent, sent() + 2).await;
    proxy.set_both(Fate::Hold);
    let (made, connections) = (proxy.connections(), || proxy.connections());
    count("a silent cut is noticed while idle", &connections, made + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_connection_was_cut_is_asked_for_again() {
    let server = Redis::start();
    let proxy = Proxy::before(server.port);
    let client = leasehold::connect(&format!("redis://127.0.0.1:{}", proxy.port)).await;
    let (client, name) = (client.expect("connected"), fresh_name());
    for way in [Way::ToServer, Way::ToClient] {
        let before = proxy.connections();
        proxy.set(way, Fate::Hold);
        let claim = tokio::spawn({
            let (client, name) = (client.clone(), name.clone());
            async move { client.mutex(&name).try_lock().await }
        });
        let s = Subject::new(
            Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("one"),
        );
        s.eventually("another connection is made", async || {
            let now = proxy.connections();
            (now > before).then_some(()).ok_or(format!("{now}"))
        })
        .await;
        proxy.set(way, Fate::Pass);
        let guard = claim.await.expect("joined").expect("asked for again");
        let _ = guard.expect("free").release().await.expect("released");
    }
}

/// Otherwise a claim that lies unread in the old one could be done after its release on the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_ends_the_old_one_at_the_server() {
    let server = Redis::start();
    let s =
        Subject::new(Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("one"));
    let url = format!("{}?timeout=200", server.url());
    let client = leasehold::connect(&url).await.expect("connected");
    let list = server.cli("CLIENT LIST");
    let ours = list.lines().find(|line| line.contains("name=leasehold"));
    let id = ours.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
    let killed = format!("CLIENT\nKILL\nID\n{}\n", id.expect("a number"));
    // Every command is written down.
    let _ = server.cli("CONFIG SET slowlog-log-slower-than 0");
    server.pause(true);
    let silent = client.mutex("x").try_lock().await;
    println!("{}", silent.expect_err("the connection is given up"));
    server.pause(false);
    s.eventually("the old connection is ended", async || {
        let log = server.cli("SLOWLOG GET 100");
        log.contains(&killed).then_some(()).ok_or(log)
    })
    .await;
    drop(client.mutex("x").lock().await.expect("back"));
}

const SILENCE: Duration = Duration::from_secs(10);
const TASKS: usize = 50;

/// Many tasks that ask and give up while the server is silent: when it is back, so are they.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_tasks_are_back_within_a_second_of_a_silent_server() {
    let server = Redis::start();
    let client = leasehold::connect(&server.url()).await.expect("connected");
    let locked: Arc<Vec<AtomicU64>> = Arc::new((0..TASKS).map(|_| AtomicU64::new(0)).collect());
    let asked = Arc::<AtomicU64>::default();
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..TASKS {
        let (client, locked, asked) = (client.clone(), locked.clone(), asked.clone());
        let _ = tasks.spawn(async move {
            let mutex = client.mutex(format!("{}-{at}", fresh_name()));
            loop {
                let _ = asked.fetch_add(1, Ordering::Relaxed);
                let within = mutex.lock_within(Duration::from_millis(100));
                let guard = if at % 2 == 0 {
                    within.await
                } else {
                    mutex.try_lock().await
                };
                if let Ok(Some(guard)) = guard {
                    let _ = guard.release().await;
                    let _ = locked[at].fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    let all = async |more: u64, before: &[u64]| {
        while locked
            .iter()
            .zip(before)
            .any(|(now, before)| now.load(Ordering::Relaxed) < before + more)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let now = || {
        locked
            .iter()
            .map(|one| one.load(Ordering::Relaxed))
            .collect::<Vec<_>>()
    };
    all(1, &now()).await;
    server.pause(true);
    tokio::time::sleep(SILENCE).await;
    let counted = now();
    server.pause(false);
    let returned = Clock::boot();
    let from = returned.now();
    let back = tokio::time::timeout(Duration::from_secs(20), all(1, &counted)).await;
    let took = Duration::from_micros(returned.now() - from);
    println!(
        "{} asked, back after {took:?}",
        asked.load(Ordering::Relaxed)
    );
    let after = now();
    let still: Vec<_> = (0..TASKS).filter(|at| after[*at] <= counted[*at]).collect();
    assert!(
        back.is_ok() && took < Duration::from_secs(1),
        "{took:?}, without {still:?}"
    );
}
