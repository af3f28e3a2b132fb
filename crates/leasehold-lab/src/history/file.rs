//! Histories on disk.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::engine::{Clock, Micros};

use super::{Record, What};
use crate::Outcome;

/// Writes the events of one process. Every line is one write: a kill loses none that happened before it.
#[derive(Debug, Clone)]
pub struct Log {
    who: String,
    clock: Clock,
    to: Arc<Mutex<Sink>>,
}

#[derive(Debug)]
enum Sink {
    File(File),
    Memory(Vec<Record>),
}

impl Log {
    /// Appends to a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn file(path: &Path, who: &str) -> Outcome<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self::new(who, Clock::boot(), Sink::File(file)))
    }

    /// Keeps the events in memory, stamped by this clock.
    pub fn memory(who: &str, clock: Clock) -> Self {
        Self::new(who, clock, Sink::Memory(Vec::new()))
    }

    fn new(who: &str, clock: Clock, sink: Sink) -> Self {
        Self {
            who: who.to_owned(),
            clock,
            to: Arc::new(Mutex::new(sink)),
        }
    }

    /// The same log, for another task or process.
    pub fn of(&self, who: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            ..self.clone()
        }
    }

    /// The writer.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// The stamp an event would get now.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Notes an event, now.
    pub fn note(&self, op: u64, what: What) {
        self.note_at(self.clock.now(), op, what);
    }

    /// Notes an event with a stamp taken before.
    ///
    /// # Panics
    /// If the file cannot be written: a history with holes proves nothing.
    pub fn note_at(&self, t: Micros, op: u64, what: What) {
        let who = self.who.clone();
        let record = Record { t, who, op, what };
        match &mut *self.to.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(records) => records.push(record),
            Sink::File(file) => {
                let written = file.write_all(&line(&record));
                written.expect("the history can be written");
            }
        }
    }

    /// Takes what was kept in memory.
    pub fn take(&self) -> Vec<Record> {
        match &mut *self.to.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(records) => std::mem::take(records),
            Sink::File(_) => Vec::new(),
        }
    }
}

fn line(record: &Record) -> Vec<u8> {
    let mut line = serde_json::to_vec(record).expect("a record is plain data");
    line.push(b'\n');
    line
}

/// Writes one file.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, records: &[Record]) -> Outcome<()> {
    let lines: Vec<_> = records.iter().map(line).collect();
    Ok(std::fs::write(path, lines.concat())?)
}

/// Reads one file. A last line that a kill cut short is left out.
///
/// # Errors
/// If it cannot be read, or a line in its middle is no record.
pub fn read(path: &Path) -> Outcome<Vec<Record>> {
    let mut lines = BufReader::new(File::open(path)?)
        .lines()
        .enumerate()
        .peekable();
    let mut records = Vec::new();
    while let Some((number, line)) = lines.next() {
        match serde_json::from_str(&line?) {
            Ok(record) => records.push(record),
            Err(_) if lines.peek().is_none() => {}
            Err(error) => return Err(format!("{}:{}: {error}", path.display(), number + 1).into()),
        }
    }
    Ok(records)
}
