//! One line that is stuck, damaged or no file at all costs the others of the same client nothing.

use std::any::Any;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::engine::{
    Claim, Clock, Engine, Event, File, Identity, Inbox, Mode, Query, Session, Standing,
};
use leasehold::{Guard, Name, Options, Released, State};
use leasehold_testkit::poll::eventually;
use tempfile::TempDir;

fn temp() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A bare session, and what it was told.
async fn session(engine: &File) -> (Arc<dyn Session>, Arc<Mutex<Vec<Event>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let inbox = Inbox::new(move |event| hears.lock().expect("whole").push(event));
    let session = engine.open(&Identity::of_this_process(), inbox).await;
    (session.expect("opened"), told)
}

/// With a lease that explains nothing these tests see.
fn claim(name: &str) -> Claim {
    let name = Name::new(name).expect("a name");
    Claim::new(name, Mode::Mutex, Duration::from_secs(600))
}

async fn granted(told: &Mutex<Vec<Event>>, claim: &Claim) {
    eventually("a grant", async || {
        let told = told.lock().expect("whole");
        let is_it = |event: &Event| matches!(event, Event::Granted(id, _) if *id == claim.id);
        told.iter()
            .any(is_it)
            .then_some(())
            .ok_or(format!("{told:?}"))
    })
    .await;
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// What another program may do to a line's file. What it gives back must live on.
type Sabotage = (&'static str, fn(&Path) -> Box<dyn Any>);

const SABOTAGES: &[Sabotage] = &[
    ("locked", |path| {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("done");
        file.lock().expect("done");
        Box::new(file)
    }),
    ("damaged", |path| {
        Box::new(fs::write(path, b"leasehld and then rubbish").expect("done"))
    }),
    ("foreign", |path| {
        Box::new(fs::write(path, b"#!/bin/sh\n").expect("done"))
    }),
    ("a pipe", |path| {
        fs::remove_file(path).expect("done");
        Box::new(make_pipe(path))
    }),
    ("a directory", |path| {
        fs::remove_file(path).expect("done");
        Box::new(fs::create_dir(path).expect("done"))
    }),
    ("a dangling link", |path| {
        fs::remove_file(path).expect("done");
        Box::new(std::os::unix::fs::symlink("/nowhere", path).expect("done"))
    }),
];

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("done").success());
}

/// The file of the line with this name, which is the only one that begins so.
fn line_of(dir: &Path, name: &str) -> PathBuf {
    let begins = |path: &PathBuf| {
        let file = path
            .file_name()
            .expect("done")
            .to_string_lossy()
            .into_owned();
        file.starts_with(&format!("{name}."))
    };
    files(&dir.join("lines"))
        .into_iter()
        .find(begins)
        .expect("done")
}

#[tokio::test]
async fn a_heartbeat_answers_for_every_line_but_the_bad_one() {
    for (what, sabotage) in SABOTAGES {
        let dir = temp();
        let engine = File::at(dir.path(), Clock::boot()).expect("done");
        let (a, _) = session(&engine).await;
        let names = ["n0", "n1", "bad", "n2", "n3"];
        let claims = names.map(|name| Arc::new(claim(name)));
        for claim in &claims {
            assert!(matches!(
                a.claim(claim).await.expect("done"),
                Standing::Held(_)
            ));
        }
        let _lasting = sabotage(&line_of(dir.path(), "bad"));
        let told = Mutex::new(Vec::new());
        let heard = |claim: &Claim, standing| {
            if matches!(standing, Standing::Held(_)) {
                told.lock().expect("done").push(claim.name.to_string());
            }
        };
        // Less than any operation waits for a line that is busy.
        let patience = Duration::from_secs(2);
        let beaten = tokio::time::timeout(patience, a.heartbeat(&claims, &heard)).await;
        assert_eq!(
            *told.lock().expect("done"),
            ["n0", "n1", "n2", "n3"],
            "{what}"
        );
        match beaten {
            Err(_) => assert_eq!(*what, "locked"),
            Ok(beaten) => {
                let error = beaten.expect_err("it speaks for the bad line");
                let text = error.to_string();
                assert!(
                    text.contains("bad"),
                    "{what}: the name and the path: {text}"
                );
                assert!(
                    text.contains("emove") || text.contains("Move"),
                    "{what}: the remedy: {text}"
                );
            }
        }
    }
}

/// For three leases, the others are held, taken and given back; the bad one alone is lost.
#[tokio::test]
async fn a_client_keeps_its_other_locks() {
    let lease = Duration::from_millis(900);
    for (what, sabotage) in SABOTAGES {
        let dir = temp();
        let url = format!("file:{}", dir.path().display());
        let client = Options::new()
            .lease(lease)
            .connect(&url)
            .await
            .expect("done");
        let bad = client.mutex("bad").lock().await.expect("done");
        let mut healthy = Vec::new();
        for n in 0..10 {
            healthy.push(client.mutex(format!("n{n}")).lock().await.expect("done"));
        }
        let lasting = sabotage(&line_of(dir.path(), "bad"));
        let clock = Clock::boot();
        let end = clock.now() + 2_700_000;
        while clock.now() < end {
            for guard in &healthy {
                assert_eq!(guard.state(), State::Valid, "{what}: {}", guard.name());
            }
            let taken = tokio::time::timeout(lease, client.mutex("new").lock()).await;
            release(taken.expect("at once").expect("done")).await;
            let seen = client.inspect(&Query::all()).await.expect("done");
            assert!(seen.len() >= 10, "{what}: {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bad.state(), State::Lost, "{what}");
        for guard in healthy {
            release(guard).await;
        }
        drop(lasting);
    }
}

/// A session that ends is buried in every line it was ahead in, also if one of them is stuck.
#[tokio::test]
async fn a_stuck_line_keeps_no_other_from_moving_on() {
    let dir = temp();
    let engine = File::at(dir.path(), Clock::boot()).expect("done");
    let ((dead, _), (also_dead, _), (next, told)) = (
        session(&engine).await,
        session(&engine).await,
        session(&engine).await,
    );
    for name in ["bad", "good"] {
        let _ = dead.claim(&claim(name)).await.expect("done");
    }
    let _ = also_dead.claim(&claim("other")).await.expect("done");
    let waits = ["bad", "good", "other"].map(claim);
    for claim in &waits {
        let standing = next.claim(claim).await.expect("done");
        assert!(matches!(standing, Standing::Waiting { .. }));
    }
    let file = fs::File::open(line_of(dir.path(), "bad")).expect("done");
    file.lock().expect("done");
    drop(dead);
    granted(&told, &waits[1]).await;
    drop(also_dead);
    granted(&told, &waits[2]).await;
    file.unlock().expect("done");
    granted(&told, &waits[0]).await;
}

/// A pipe keeps its opener until another process opens the other end: no client may ever open one so.
#[test]
fn pipes_in_the_directory_hang_no_client() {
    let dir = temp();
    let path = dir.path().to_owned();
    let (done, ended) = std::sync::mpsc::channel();
    let _ = std::thread::spawn(move || {
        let url = format!("file:{}", path.display());
        let connect = || leasehold::blocking::connect(&url).expect("done");
        let first = connect();
        let held = first.mutex("held").lock().expect("done");
        drop(first.mutex("idle").lock().expect("done"));
        let id = "0123456789abcdef0123456789abcdef";
        let mut pipes: Vec<_> = [id.to_owned(), format!("{id}.sock")]
            .map(|file| path.join("sessions").join(file))
            .into();
        for name in ["evicted.log", "floor", "lines/pipe"] {
            let pipe = path.join(name);
            let _ = fs::remove_file(&pipe);
            pipes.push(pipe);
        }
        pipes.iter().for_each(|pipe| make_pipe(pipe));
        let second = connect();
        assert!(second.mutex("held").try_lock().expect("done").is_none());
        assert_eq!(
            second.inspect(&Query::all()).expect("done")[0]
                .name
                .as_str(),
            "held"
        );
        // The trace cannot be left, which is said.
        let error = second
            .evict("held", None, "a test")
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("regular") && error.contains("evicted.log"),
            "{error}"
        );
        assert!(held.release().is_ok());
        // A name that comes back needs the floor.
        let error = second
            .mutex("new")
            .try_lock()
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("regular") && error.contains("floor"),
            "{error}"
        );
        for pipe in &pipes {
            assert!(
                fs::symlink_metadata(pipe)
                    .expect("done")
                    .file_type()
                    .is_fifo(),
                "{pipe:?}"
            );
        }
        done.send(()).expect("done");
    });
    let ended = ended.recv_timeout(Duration::from_secs(60));
    ended.expect("it hangs, or failed above");
}
