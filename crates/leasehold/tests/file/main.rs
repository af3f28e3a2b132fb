//! The `file` engine through the public API: two clients on one directory.
#![cfg(all(feature = "file", unix))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ends;
mod files;
mod lines;
mod rule;

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
use leasehold::{Client, ConnectOptions, ErrorKind, Guard, GuardState, Name, Released};
use proptest::prelude::*;
use tempfile::TempDir;

/// Long enough that no heartbeat and no lease explains what these tests see.
const LEASE: Duration = Duration::from_secs(600);

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn client(dir: &Path) -> Client {
    let url = format!("file:{}", dir.display());
    ConnectOptions::new()
        .lease(LEASE)
        .connect(&url)
        .await
        .unwrap()
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

/// Where these claims stand, in order.
async fn beat(session: &dyn Session, claims: &[Arc<Claim>]) -> Vec<Standing> {
    let told = Mutex::new(std::collections::HashMap::new());
    let heard = |claim: &Claim, standing| {
        let _ = told.lock().unwrap().insert(claim.id, standing);
    };
    session.heartbeat(claims, &heard).await.unwrap();
    let told = told.into_inner().unwrap();
    claims.iter().map(|claim| told[&claim.id]).collect()
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
