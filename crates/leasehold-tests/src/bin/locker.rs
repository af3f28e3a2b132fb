//! A process that locks on command, for tests that kill, stop and count real processes.
//!
//! `locker URL LEASE_MS`, then one command per line on stdin, one answer per line on stdout.

use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::time::Duration;

use leasehold::{Client, Fence, Guard, Options, Result};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, lease] = &arguments[..] else {
        panic!("usage: locker URL LEASE_MS");
    };
    let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
    let client = match Options::new().lease(lease).connect(url).await {
        Ok(client) => client,
        Err(error) => return println!("error {} {error}", error.kind().code()),
    };
    println!("ready");
    let mut worker = Worker {
        client,
        guards: HashMap::new(),
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        match worker.obey(&words).await {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {} {error}", error.kind().code()),
        }
    }
}

struct Worker {
    client: Client,
    guards: HashMap<String, Guard>,
}

impl Worker {
    async fn obey(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["lock", name] => {
                let guard = self.client.mutex(name).lock().await?;
                self.hold(name, guard)
            }
            ["try", name] => match self.client.mutex(name).try_lock().await? {
                Some(guard) => self.hold(name, guard),
                None => "busy".to_owned(),
            },
            ["permits", name, count, of] => {
                let semaphore = self.client.semaphore(name, of.parse().expect("a number"));
                let count = count.parse().expect("a number");
                let guard = semaphore.acquire_many(count).await?;
                self.hold(name, guard)
            }
            ["release", name] => match self.guards.remove(name) {
                Some(guard) => format!("{:?}", guard.release().await?),
                None => "not held".to_owned(),
            },
            ["state", name] => format!("{:?}", self.guards[name].state()),
            ["lost", name] => format!("lost {}", self.guards[name].lost().await),
            ["write", name, file] => write_fenced(file, self.guards[name].fence()),
            ["count", name, file, rounds] => self.count(name, file, rounds).await?,
            ["shutdown"] => format!("{:?}", self.client.shutdown(Duration::from_secs(10)).await?),
            _ => panic!("unknown command {words:?}"),
        })
    }

    fn hold(&mut self, name: &str, guard: Guard) -> String {
        let answer = format!("held {}", guard.fence());
        let _ = self.guards.insert(name.to_owned(), guard);
        answer
    }

    /// Adds to a number in a file that only the lock protects.
    async fn count(&self, name: &str, file: &str, rounds: &str) -> Result<String> {
        let mutex = self.client.mutex(name);
        for _ in 0..rounds.parse().expect("a number") {
            let guard = mutex.lock().await?;
            let number: u64 = std::fs::read_to_string(file)
                .expect("readable")
                .parse()
                .expect("a number");
            tokio::task::yield_now().await;
            // Renamed into place: a kill in the middle must not tear the number.
            let next = format!("{file}.next");
            std::fs::write(&next, (number + 1).to_string()).expect("writable");
            std::fs::rename(&next, file).expect("writable");
            let _ = guard.release().await?;
        }
        Ok("counted".to_owned())
    }
}

/// A resource that checks fences: a file that keeps the largest one and refuses smaller ones. Nothing else protects
/// it, so the test that uses it runs one writer at a time.
fn write_fenced(file: &str, fence: Fence) -> String {
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .expect("it is there");
    let mut seen = String::new();
    let _ = file.read_to_string(&mut seen).expect("readable");
    if seen.parse::<u64>().is_ok_and(|seen| seen > fence.get()) {
        return format!("refused: {seen} was seen");
    }
    file.rewind()
        .and_then(|()| write!(file, "{fence}"))
        .expect("writable");
    "accepted".to_owned()
}
