//! The resource that checks fences: it takes effects in fence order, counts them, and stamps what it does.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Outcome;
use crate::history::{Log, What};

/// Listens on a socket until the program ends.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    state: Arc<Mutex<HashMap<String, Door>>>,
    path: PathBuf,
}

/// What is kept of one name.
#[derive(Debug, Default)]
struct Door {
    fence: u64,
    by: String,
    count: u64,
    refused: u64,
}

impl Gate {
    pub(super) fn open(path: &Path, log: &Log) -> Outcome<Self> {
        let listener = UnixListener::bind(path)?;
        let gate = Self { state: Arc::default(), path: path.to_owned() };
        let (serving, log) = (gate.clone(), log.of("gate"));
        drop(std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (serving, log) = (serving.clone(), log.clone());
                drop(std::thread::spawn(move || serving.serve(stream, &log)));
            }
        }));
        Ok(gate)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn serve(&self, stream: UnixStream, log: &Log) {
        let Ok(mut answers) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Some((name, by, fence)) = parse(&line) else { return };
            let answer = if self.admit(name, by, fence, log) { "yes\n" } else { "no\n" };
            if answers.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn admit(&self, name: &str, by: &str, fence: u64, log: &Log) -> bool {
        let mut doors = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let door = doors.entry(name.to_owned()).or_default();
        let accepted = fence > door.fence || (fence == door.fence && by == door.by);
        if accepted {
            (door.fence, door.by) = (fence, by.to_owned());
            door.count += 1;
        } else {
            door.refused += 1;
        }
        // Under the lock: the stamps are in the order of the effects.
        log.note(0, What::Effect { name: name.to_owned(), by: by.to_owned(), fence, accepted });
        accepted
    }

    /// Accepted and refused so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        let doors = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        doors.values().fold((0, 0), |sum, door| (sum.0 + door.count, sum.1 + door.refused))
    }

    /// Notes the number behind each name.
    pub(super) fn note_counts(&self, log: &Log) {
        let doors = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, door) in &*doors {
            log.note(0, What::Counted { name: name.clone(), count: door.count });
        }
    }
}

fn parse(line: &str) -> Option<(&str, &str, u64)> {
    let mut words = line.split(' ');
    let (name, by, fence) = (words.next()?, words.next()?, words.next()?);
    Some((name, by, fence.parse().ok()?))
}

/// A worker's way to the gate.
#[derive(Debug)]
pub(super) struct Visitor(BufReader<UnixStream>);

impl Visitor {
    pub(super) fn new(path: &Path) -> Outcome<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(path)?)))
    }

    /// Tries an effect; whether it was taken.
    pub(super) fn knock(&mut self, name: &str, by: &str, fence: u64) -> Outcome<bool> {
        self.0.get_mut().write_all(format!("{name} {by} {fence}\n").as_bytes())?;
        let mut answer = String::new();
        let _ = self.0.read_line(&mut answer)?;
        Ok(answer.trim() == "yes")
    }
}
