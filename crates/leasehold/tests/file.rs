//! The `file` engine through the public API: two clients on one directory.
#![cfg(feature = "file")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::engine::SessionId;
use leasehold::engine::{
    Claim, Clock, Ended, Engine, Event, File, Held, Identity, Inbox, Mode, Query, Release, Session,
    Standing,
};
use leasehold::line::{Line, Moment, What};
use leasehold::{Client, ErrorKind, Guard, Name, Options, Released, State};
use proptest::prelude::*;
use tempfile::TempDir;

/// Long enough that no heartbeat and no lease explains what these tests see.
const LEASE: Duration = Duration::from_secs(600);

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn client(dir: &Path) -> Client {
    let url = format!("file:{}", dir.display());
    Options::new().lease(LEASE).connect(&url).await.unwrap()
}

/// A bare session, and what it was told.
async fn session(engine: &File) -> (Arc<dyn Session>, Arc<Mutex<Vec<Event>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let inbox = {
        let told = told.clone();
        Inbox::new(move |event| told.lock().unwrap().push(event))
    };
    let session = engine.open(&Identity::of_this_process(), inbox).await;
    (session.unwrap(), told)
}

fn claim(name: &str) -> Claim {
    Claim::new(Name::new(name).unwrap(), Mode::Mutex, LEASE)
}

/// Polls until there is a value, and fails with the last state.
async fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..5_000 {
        match look() {
            Ok(value) => return value,
            Err(state) => last = state,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{what}: not within 10 s; last: {last}");
}

async fn granted(told: &Mutex<Vec<Event>>, claim: &Claim) -> Held {
    until("a grant", || {
        let told = told.lock().unwrap();
        let found = told.iter().find_map(|event| match event {
            Event::Granted(id, held) if *id == claim.id => Some(*held),
            _ => None,
        });
        found.ok_or_else(|| format!("{told:?}"))
    })
    .await
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn excludes_and_hands_over_at_once_with_growing_fences() {
    let dir = temp();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(
        b.mutex("X").try_lock().await.unwrap().is_some(),
        "case matters"
    );
    let first = held.fence();
    let mut tasks = tokio::task::JoinSet::new();
    let _ = tasks.spawn(async move { b.mutex("x").lock().await.unwrap().fence() });
    let query = Query::name(Name::new("x").unwrap());
    loop {
        let lines = a.inspect(&query).await.unwrap();
        if lines[0].waiters.len() == 1 {
            assert_eq!(lines[0].holders[0].fence, Some(first));
            assert_eq!(
                lines[0].waiters[0].who.as_ref().unwrap().pid,
                std::process::id()
            );
            break;
        }
        tokio::task::yield_now().await;
    }
    release(held).await;
    let second = tokio::time::timeout(Duration::from_secs(10), tasks.join_next())
        .await
        .expect("pushed, not polled");
    assert!(second.unwrap().unwrap() > first);
}

#[tokio::test]
async fn two_engines_on_one_directory_say_so() {
    let dir = temp();
    fs::create_dir(dir.path().join("d")).unwrap();
    let url = |path: &str| format!("file:{}/{path}", dir.path().display());
    let a = leasehold::connect(&url("d/")).await.unwrap();
    let b = leasehold::connect(&url("./d/../d")).await.unwrap();
    assert_eq!(a.location(), b.location());
    assert_eq!(
        a.location(),
        format!(
            "file:{}",
            fs::canonicalize(dir.path().join("d")).unwrap().display()
        )
    );
}

#[tokio::test]
async fn leaves_no_file_behind() {
    let dir = temp();
    let a = client(dir.path()).await;
    for name in ["x", "../y", "z/".repeat(100).as_str()] {
        release(a.mutex(name).lock().await.unwrap()).await;
    }
    let _ = a.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(files(&dir.path().join("lines")), Vec::<PathBuf>::new());
    assert_eq!(files(&dir.path().join("sessions")), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn removes_the_files_of_idle_names_while_it_lives() {
    let dir = temp();
    let a = client(dir.path()).await;
    let kept = a.mutex("kept").lock().await.unwrap();
    release(a.mutex("idle").lock().await.unwrap()).await;
    assert_eq!(files(&dir.path().join("lines")).len(), 2);
    until("one file", || match files(&dir.path().join("lines")) {
        left if left.len() == 1 => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
    assert!(kept.check().is_ok());
    let first = kept.fence();
    release(kept).await;
    assert!(a.mutex("kept").lock().await.unwrap().fence() > first);
}

#[tokio::test]
async fn only_this_user_can_read_what_it_makes() {
    let dir = temp();
    let a = client(&dir.path().join("new")).await;
    let _held = a.mutex("x").lock().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in ["new", "new/lines", "new/sessions"] {
        let folder = dir.path().join(folder);
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
        for file in files(&folder).into_iter().filter(|file| !file.is_dir()) {
            assert_eq!(mode(&file), 0o600, "{file:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_reported_and_left_alone() {
    let dir = temp();
    let a = client(dir.path()).await;
    release(a.mutex("x").lock().await.unwrap()).await;
    let path = files(&dir.path().join("lines")).remove(0);
    let whole = fs::read(&path).unwrap();
    for (bytes, hint) in [
        (b"#!/bin/sh\n".to_vec(), "not a lock's file"),
        (whole[..70].to_vec(), "damaged"),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = a.mutex("x").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.contains(hint) && text.contains(path.to_str().unwrap()),
            "{text}"
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was changed");
    }
    // Another name's file, copied over.
    release(a.mutex("y").lock().await.unwrap()).await;
    let others = files(&dir.path().join("lines"));
    let other = others.iter().find(|other| **other != path).unwrap();
    let _ = fs::copy(other, &path).unwrap();
    let error = a.mutex("x").try_lock().await.unwrap_err().to_string();
    assert!(error.contains("belongs to the name \"y\""), "{error}");
}

#[tokio::test]
async fn a_directory_removed_underneath_is_a_loss_and_then_a_new_start() {
    let dir = temp();
    let path = dir.path().join("d");
    let url = format!("file:{}", path.display());
    let a = Options::new()
        .lease(Duration::from_millis(900))
        .connect(&url)
        .await
        .unwrap();
    let held = a.mutex("x").lock().await.unwrap();
    fs::remove_dir_all(&path).unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(10), held.lost())
        .await
        .expect("told");
    assert_eq!(held.state(), State::Lost);
    let b = client(&path).await;
    let again = a.mutex("x").lock().await.unwrap();
    assert!(
        b.mutex("x").try_lock().await.unwrap().is_none(),
        "the session lives in the new directory"
    );
    release(again).await;
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_claim_right_after_the_directory_was_removed_excludes() {
    let dir = temp();
    let path = dir.path().join("d");
    let a = client(&path).await;
    release(a.mutex("x").lock().await.unwrap()).await;
    fs::remove_dir_all(&path).unwrap();
    let b = client(&path).await;
    let _held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_whose_directory_was_removed_is_down_and_begins_anew() {
    let dir = temp();
    let engine = File::at(dir.path().join("d"), Clock::boot()).unwrap();
    let ((a, told), (b, _)) = (session(&engine).await, session(&engine).await);
    for gone in ["d", "d/sessions"] {
        let (held, other) = (Arc::new(claim("x")), claim("x"));
        assert!(matches!(a.claim(&held).await.unwrap(), Standing::Held(_)));
        fs::remove_dir_all(dir.path().join(gone)).unwrap();
        assert_eq!(
            a.heartbeat(&[held]).await.unwrap(),
            [Standing::Gone],
            "{gone}"
        );
        let down = told.lock().unwrap().pop();
        assert!(matches!(down, Some(Event::Down(_))), "{down:?}");
        assert_eq!(b.heartbeat(&[]).await.unwrap(), []);
        assert!(matches!(a.claim(&other).await.unwrap(), Standing::Held(_)));
        assert_eq!(b.claim(&claim("x").tries()).await.unwrap(), Standing::Busy);
        assert_eq!(a.release(&other, 1).await.unwrap(), Release::Released);
    }
    // Without the lines only the claims are gone.
    let held = Arc::new(claim("x"));
    let _ = a.claim(&held).await.unwrap();
    fs::remove_dir_all(dir.path().join("d/lines")).unwrap();
    assert_eq!(a.heartbeat(&[held]).await.unwrap(), [Standing::Gone]);
    assert!(matches!(
        a.claim(&claim("x")).await.unwrap(),
        Standing::Held(_)
    ));
}

#[tokio::test]
async fn a_dead_session_is_noticed_at_once_by_tries_and_by_waiters() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let (dead, _) = session(&engine).await;
    let (next, told) = session(&engine).await;
    let (last, told_last) = session(&engine).await;
    let (held, waits, waits_too) = (claim("x"), claim("x"), claim("x"));
    assert!(matches!(
        dead.claim(&held).await.unwrap(),
        Standing::Held(_)
    ));
    assert!(matches!(
        next.claim(&waits).await.unwrap(),
        Standing::Waiting { ahead: 1, .. }
    ));
    assert!(matches!(
        last.claim(&waits_too).await.unwrap(),
        Standing::Waiting { ahead: 2, .. }
    ));
    assert!(matches!(
        dead.claim(&claim("y")).await.unwrap(),
        Standing::Held(_)
    ));
    assert_eq!(
        last.claim(&claim("y").tries()).await.unwrap(),
        Standing::Busy
    );
    drop(dead); // as a killed process: nothing is released
    assert!(matches!(
        last.claim(&claim("y").tries()).await.unwrap(),
        Standing::Held(_)
    ));
    let _ = granted(&told, &waits).await;
    drop(next);
    let _ = granted(&told_last, &waits_too).await;
}

#[tokio::test]
async fn a_grant_skips_those_who_died_in_line() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let (holder, _) = session(&engine).await;
    let (dead, _) = session(&engine).await;
    let (last, told) = session(&engine).await;
    let (held, waits) = (claim("x"), claim("x"));
    let _ = holder.claim(&held).await.unwrap();
    let _ = dead.claim(&claim("x")).await.unwrap();
    let _ = last.claim(&waits).await.unwrap();
    drop(dead);
    assert_eq!(holder.release(&held, 1).await.unwrap(), Release::Released);
    // Before anybody's watcher had a chance to run.
    let lines = engine.inspect(&Query::all()).await.unwrap();
    assert_eq!((lines[0].holders.len(), lines[0].waiters.len()), (1, 0));
    let _ = granted(&told, &waits).await;
}

#[tokio::test]
async fn an_eviction_is_told_and_leaves_a_trace() {
    let dir = temp();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let held = a.mutex("x").lock().await.unwrap();
    assert_eq!(b.evict("x", None, "the job\nhangs").await.unwrap(), 1);
    let _ = tokio::time::timeout(Duration::from_secs(10), held.lost())
        .await
        .expect("told");
    let why = held.check().unwrap_err().to_string();
    assert!(why.contains("hangs"), "{why}");
    let trace = fs::read_to_string(dir.path().join("evicted.log")).unwrap();
    assert_eq!(trace.lines().count(), 1, "{trace}");
    assert!(
        trace.contains("\"x\"") && trace.contains(&held.fence().to_string()),
        "{trace}"
    );
    assert_eq!(b.evict("x", None, "again").await.unwrap(), 0);
    assert_eq!(b.evict("never", None, "again").await.unwrap(), 0);
}

/// The kernel queues ten datagrams per socket: a burst of grants must not wait for heartbeats.
#[tokio::test]
async fn a_burst_of_grants_arrives() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let names: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    let held: Vec<_> = names.iter().map(|name| claim(name)).collect();
    let waits: Vec<_> = names.iter().map(|name| claim(name)).collect();
    for (held, waits) in held.iter().zip(&waits) {
        let _ = a.claim(held).await.unwrap();
        let _ = b.claim(waits).await.unwrap();
    }
    for held in &held {
        let _ = a.release(held, 1).await.unwrap();
    }
    for waits in &waits {
        let _ = granted(&told, waits).await;
    }
}

#[tokio::test]
async fn keeps_few_files_open_however_many_names() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let (a, _) = session(&engine).await;
    let claims: Vec<_> = (0..1_000)
        .map(|n| Arc::new(claim(&format!("n{n}"))))
        .collect();
    for claim in &claims {
        let _ = a.claim(claim).await.unwrap();
    }
    let root = fs::canonicalize(dir.path()).unwrap();
    let open = files(Path::new("/proc/self/fd"))
        .into_iter()
        .filter_map(|fd| fs::read_link(fd).ok());
    let open = open.filter(|path| path.starts_with(&root)).count();
    assert!(open < 200, "{open} open files");
    let standings = a.heartbeat(&claims).await.unwrap();
    assert!(
        standings
            .iter()
            .all(|standing| matches!(standing, Standing::Held(_)))
    );
    a.close().await.unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
}

#[tokio::test]
async fn works_in_a_directory_with_a_long_path() {
    let dir = temp();
    let deep = dir.path().join("long/".repeat(30));
    let engine = File::at(&deep, Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let (held, waits) = (claim("x"), claim("x"));
    let _ = a.claim(&held).await.unwrap();
    let _ = b.claim(&waits).await.unwrap();
    let _ = a.release(&held, 1).await.unwrap();
    let _ = granted(&told, &waits).await;
}

#[tokio::test]
async fn garbage_in_the_socket_is_ignored() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let stranger = std::os::unix::net::UnixDatagram::unbound().unwrap();
    for socket in files(&dir.path().join("sessions")) {
        if socket.extension().is_some_and(|end| end == "sock") {
            for garbage in [&b""[..], b"hello", b"LH\x01", b"LH\x02\x01", &[0xff; 1000]] {
                let _ = stranger.send_to(garbage, &socket).unwrap();
            }
        }
    }
    let (held, waits) = (claim("x"), claim("x"));
    let _ = a.claim(&held).await.unwrap();
    let _ = b.claim(&waits).await.unwrap();
    let _ = a.release(&held, 1).await.unwrap();
    let _ = granted(&told, &waits).await;
    assert!(
        told.lock()
            .unwrap()
            .iter()
            .all(|event| !matches!(event, Event::Ended(_, Ended::Down(_))))
    );
}

/// What a random history does to two sessions.
#[derive(Debug, Clone)]
enum Step {
    Claim {
        session: usize,
        name: usize,
        mode: Mode,
        lease: u64,
        waits: bool,
    },
    Again {
        nth: usize,
    },
    Heartbeat {
        nth: usize,
    },
    Release {
        nth: usize,
        used: u32,
    },
    Evict {
        name: usize,
    },
    Pass {
        micros: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![
        Just(Mode::Mutex),
        Just(Mode::Read),
        Just(Mode::Write),
        (1..3_u32).prop_map(|count| Mode::Permits { count, of: 2 }),
    ];
    let step = prop_oneof![
        4 => (0..2_usize, 0..2_usize, mode, 1..4_000_u64, any::<bool>())
            .prop_map(|(session, name, mode, lease, waits)| Step::Claim { session, name, mode, lease, waits }),
        1 => (0..9_usize).prop_map(|nth| Step::Again { nth }),
        3 => (0..9_usize).prop_map(|nth| Step::Heartbeat { nth }),
        4 => (0..9_usize, 0..300_u32).prop_map(|(nth, used)| Step::Release { nth, used }),
        1 => (0..2_usize).prop_map(|name| Step::Evict { name }),
        2 => (1..3_000_000_u64).prop_map(|micros| Step::Pass { micros }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Feeds one history to the engine and to the rule itself; every answer must be the same.
async fn agree(steps: Vec<Step>) {
    let (dir, clock) = (temp(), Clock::simulated());
    let engine = File::at(dir.path(), clock.clone()).unwrap();
    let sessions = [session(&engine).await.0, session(&engine).await.0];
    let ids = [SessionId::from_u128(1), SessionId::from_u128(2)];
    let names = ["a", "A"].map(|name| Name::new(name).unwrap());
    let mut lines = [Line::default(), Line::default()];
    let mut claims: Vec<(usize, usize, Claim)> = Vec::new();
    for step in steps {
        let at = Moment {
            now: clock.now(),
            floor: clock.wall(),
        };
        match &step {
            Step::Claim {
                session,
                name,
                mode,
                lease,
                waits,
            } => {
                let mut claim =
                    Claim::new(names[*name].clone(), *mode, Duration::from_millis(*lease));
                claim.waits = *waits;
                let (expected, _) = lines[*name].claim(&claim.ask(ids[*session]), at);
                let answer = sessions[*session].claim(&claim).await;
                assert_eq!(answer.is_err(), expected.is_err(), "{step:?}: {answer:?}");
                if let (Ok(answer), Ok(expected)) = (answer, expected) {
                    assert_eq!(answer, expected, "{step:?}");
                }
                claims.push((*session, *name, claim));
            }
            Step::Again { nth } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].claim(&claim.ask(ids[*session]), at);
                let answer = sessions[*session].claim(claim).await;
                assert_eq!(answer.ok(), expected.ok(), "{step:?}");
            }
            Step::Heartbeat { nth } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].heartbeat(claim.id, at);
                let answer = sessions[*session]
                    .heartbeat(&[Arc::new(claim.clone())])
                    .await;
                assert_eq!(answer.unwrap(), [expected], "{step:?}");
            }
            Step::Release { nth, used } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].release(claim.id, *used, at);
                let answer = sessions[*session].release(claim, *used).await;
                assert_eq!(answer.unwrap(), expected, "{step:?}");
            }
            Step::Evict { name } => {
                let changes = lines[*name].evict(None, at);
                let expected = changes
                    .iter()
                    .filter(|change| change.what == What::Evicted)
                    .count();
                let by = Identity::of_this_process();
                let answer = engine
                    .evict(&names[*name], None, &by, "a test")
                    .await
                    .unwrap();
                assert_eq!(answer as usize, expected, "{step:?}");
            }
            Step::Pass { micros } => tokio::time::advance(Duration::from_micros(*micros)).await,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn agrees_with_the_rule_on_random_histories(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(agree(steps));
    }
}

#[tokio::test]
async fn what_a_killed_process_left_is_cleared_away() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let (dead, _) = session(&engine).await;
    let _ = dead.claim(&claim("x")).await.unwrap();
    drop(dead);
    // A file is kept until the clock has passed its last fence: here, a block that was never given back.
    let clock = Clock::boot();
    let passed = clock.wall() + 1_000;
    until("the clock", || {
        (clock.wall() > passed)
            .then_some(())
            .ok_or_else(String::new)
    })
    .await;
    // A killed process also leaves these.
    let sessions = dir.path().join("sessions");
    fs::write(sessions.join("0123456789abcdef0123456789abcdef"), "").unwrap();
    fs::write(sessions.join("0123456789abcdef0123456789abcdef.sock"), "").unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 1);
    let (a, _) = session(&engine).await;
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
    assert_eq!(files(&sessions).len(), 2, "a file and a socket");
    drop(a);
    assert_eq!(files(&sessions).len(), 0);
}

#[tokio::test]
async fn a_session_that_was_never_closed_leaves_no_idle_file() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).unwrap();
    let ((a, _), claim) = (session(&engine).await, claim("x"));
    let _ = a.claim(&claim).await.unwrap();
    let _ = a.release(&claim, 1).await.unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 1);
    drop(a);
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
}

/// Two machines' worth of wall clock on one directory: the second is an hour behind, as after a step back.
#[tokio::test]
async fn fences_grow_though_the_file_is_gone_and_the_wall_clock_went_back() {
    let dir = temp();
    let (before, after) = (Clock::simulated(), Clock::simulated());
    before.skip(Duration::from_secs(3_600));
    let mut fences = Vec::new();
    for clock in [before, after] {
        let engine = File::at(dir.path(), clock).unwrap();
        let ((a, _), claim) = (session(&engine).await, claim("x"));
        let Standing::Held(held) = a.claim(&claim).await.unwrap() else {
            panic!("not held");
        };
        fences.push(held.fence);
        let _ = a.release(&claim, 1).await.unwrap();
        a.close().await.unwrap();
        if fences.len() == 1 {
            assert_eq!(files(&dir.path().join("lines")).len(), 0);
        }
    }
    assert!(fences[1] > fences[0], "{fences:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_clients_never_meet_and_their_fences_only_grow() {
    let dir = temp();
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, fences) = (client(dir.path()).await, fences.clone());
        let _ = tasks.spawn(async move {
            for _ in 0..50 {
                let guard = client.mutex("hot").lock().await.unwrap();
                fences.try_lock().expect("alone").push(guard.fence());
                release(guard).await;
            }
            let _ = client.shutdown(Duration::from_secs(5)).await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 400);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(files(&dir.path().join("lines")), Vec::<PathBuf>::new());
    assert_eq!(files(&dir.path().join("sessions")), Vec::<PathBuf>::new());
}
