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
pub(crate) struct Gate {
    state: Arc<Mutex<HashMap<String, Door>>>,
    path: PathBuf,
    log: Log,
}

/// The state of one name.
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
        let gate = Self {
            path: path.to_owned(),
            ..Self::within(log)
        };
        let serving = gate.clone();
        drop(std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                drop(std::thread::spawn(move || serving.serve(stream)));
            }
        }));
        Ok(gate)
    }

    /// For visitors of this process only.
    pub(crate) fn within(log: &Log) -> Self {
        Self {
            state: Arc::default(),
            path: PathBuf::new(),
            log: log.of("gate"),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn serve(&self, stream: UnixStream) {
        let Ok(mut answers) = stream.try_clone() else {
            return;
        };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Some((name, by, fence)) = parse(&line) else {
                return;
            };
            let answer = if self.admit(name, by, fence) {
                "yes\n"
            } else {
                "no\n"
            };
            if answers.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn admit(&self, name: &str, by: &str, fence: u64) -> bool {
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
        self.log.note(
            0,
            What::Effect {
                name: name.to_owned(),
                by: by.to_owned(),
                fence,
                accepted,
            },
        );
        accepted
    }

    /// Accepted and refused so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        let doors = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        doors.values().fold((0, 0), |sum, door| {
            (sum.0 + door.count, sum.1 + door.refused)
        })
    }

    /// Notes the number behind each name.
    pub(crate) fn note_counts(&self, log: &Log) {
        let doors = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, door) in &*doors {
            log.note(
                0,
                What::Counted {
                    name: name.clone(),
                    count: door.count,
                },
            );
        }
    }
}

fn parse(line: &str) -> Option<(&str, &str, u64)> {
    let mut words = line.split(' ');
    let (name, by, fence) = (words.next()?, words.next()?, words.next()?);
    Some((name, by, fence.parse().ok()?))
}

/// A way to the gate.
#[derive(Debug)]
pub(crate) enum Visitor {
    Outside(BufReader<UnixStream>),
    Inside(Gate),
}

impl Visitor {
    pub(super) fn new(path: &Path) -> Outcome<Self> {
        Ok(Self::Outside(BufReader::new(UnixStream::connect(path)?)))
    }

    /// Tries an effect; whether it was taken.
    pub(super) fn knock(&mut self, name: &str, by: &str, fence: u64) -> Outcome<bool> {
        let stream = match self {
            Self::Inside(gate) => return Ok(gate.admit(name, by, fence)),
            Self::Outside(stream) => stream,
        };
        stream
            .get_mut()
            .write_all(format!("{name} {by} {fence}\n").as_bytes())?;
        let mut answer = String::new();
        let _ = stream.read_line(&mut answer)?;
        Ok(answer.trim() == "yes")
    }
}
