//! A process that locks on command, for tests that kill, stop and count real processes.
//!
//! `locker URL LEASE_MS`, then one command per line on stdin, one answer per line on stdout.

use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold::{Client, ConnectOptions, Error, ErrorKind, Fence, Guard, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, lease] = &arguments[..] else {
        panic!("usage: locker URL LEASE_MS");
    };
    let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
    let client = match ConnectOptions::new().lease(lease).connect(url).await {
        Ok(client) => client,
        Err(error) => return println!("error {} {error}", error.kind().code()),
    };
    println!("ready");
    let mut worker = Worker {
        client,
        guards: HashMap::new(),
        many: Vec::new(),
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
    /// The guards of `hold`.
    many: Vec<(u64, Vec<Guard>)>,
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
            ["hold", scene, prefix, count, lease, apart] => {
                let [count, lease, apart] =
                    [count, lease, apart].map(|n| n.parse().expect("a number"));
                self.hold_many(scene, prefix, count, [lease, apart]).await?
            }
            ["ends"] => self.ends(),
            ["try-many", tasks] => {
                (0..tasks.parse().expect("a number"))
                    .for_each(|task: u32| self.try_on_and_on(task));
                "trying".to_owned()
            }
            ["back", name] => self.back(name).await,
            ["release", name] => match self.guards.remove(name) {
                Some(guard) => format!("{:?}", guard.release().await?),
                None => "not held".to_owned(),
            },
            ["state", name] => format!("{:?}", self.guards[name].state()),
            ["lost", name] => format!("lost {}", self.guards[name].lost().await),
            ["write", name, file] => write_fenced(file, self.guards[name].fence()),
            ["count", name, file, rounds] => self.count(name, file, rounds).await?,
            ["cached", name, count] => self.cached(name, count.parse().expect("a number")).await?,
            ["shutdown"] => format!("{:?}", self.client.shutdown(Duration::from_secs(10)).await?),
            _ => panic!("unknown command {words:?}"),
        })
    }

    /// Holds many names, as a scene of the tests of the edge asks for, each for a lease that is a little longer than the
    /// one before. It never releases them.
    async fn hold_many(
        &mut self,
        scene: &str,
        prefix: &str,
        count: u64,
        [lease, apart]: [u64; 2],
    ) -> Result<String> {
        let mut held = JoinSet::new();
        for at in 0..count {
            let (client, scene) = (self.client.clone(), scene.to_owned());
            let (name, lease) = (format!("{prefix}{at}"), lease + apart * at);
            let lease = Duration::from_millis(lease);
            // One after the other what is never renewed: so it is known when the engine got it.
            if scene == "fixed" {
                self.many
                    .push((at, hold(&client, &scene, &name, lease).await?));
                continue;
            }
            let _ = held.spawn(async move { Ok((at, hold(&client, &scene, &name, lease).await?)) });
        }
        let held: Vec<_> = held.join_all().await.into_iter().collect::<Result<_>>()?;
        self.many.extend(held);
        self.many.sort_by_key(|(at, _)| *at);
        Ok("held".to_owned())
    }

    /// A task that tries for a tenth of a second, again and again.
    fn try_on_and_on(&self, task: u32) {
        let mutex = self.client.mutex(format!("many:{task}"));
        drop(tokio::spawn(async move {
            loop {
                let _ = mutex.lock_within(Duration::from_millis(100)).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }

    /// Locks as soon as it can; says when that was.
    async fn back(&self, name: &str) -> String {
        let mutex = self.client.mutex(name);
        while mutex.lock().await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        format!("back {}", Clock::boot().now())
    }

    /// Of each name of `hold` the largest fence, and when its lease ends in the engine, in microseconds of the wall clock:
    /// a fiftieth and 5 ms after its guards are lost, and the time of a message.
    fn ends(&self) -> String {
        let wall = Clock::boot().wall();
        let ends = self.many.iter().map(|(_, guards)| {
            let fence = guards.iter().map(Guard::fence).max().expect("held");
            let end =
                |guard: &Guard| guard.remaining() + guard.lease() / 50 + Duration::from_millis(5);
            let left = guards.iter().map(end).max().expect("held");
            format!("{fence}:{}", wall + left.as_micros() as u64)
        });
        ends.collect::<Vec<_>>().join(" ")
    }

    /// Misses a cached value so many times at once; says how many of them loaded.
    async fn cached(&self, name: &str, count: usize) -> Result<String> {
        let loads = Arc::new(AtomicUsize::new(0));
        let mut misses = JoinSet::new();
        for _ in 0..count {
            let (cached, loads) = (self.client.cached::<String>(name), loads.clone());
            let _ = misses.spawn(async move {
                let load = async || {
                    let _ = loads.fetch_add(1, Ordering::Relaxed);
                    // The database takes its time.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok::<_, Error>(Some("loaded".to_owned()))
                };
                cached.get_or_load(load).await
            });
        }
        for told in misses.join_all().await {
            assert_eq!(told?.as_deref().map(String::as_str), Some("loaded"));
        }
        Ok(format!("loads {}", loads.load(Ordering::Relaxed)))
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

/// Holds one name as a scene asks for, also if a busy machine takes longer than its lease to answer.
async fn hold(client: &Client, scene: &str, name: &str, lease: Duration) -> Result<Vec<Guard>> {
    loop {
        match hold_once(client, scene, name, lease).await {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            held => return held,
        }
    }
}

async fn hold_once(
    client: &Client,
    scene: &str,
    name: &str,
    lease: Duration,
) -> Result<Vec<Guard>> {
    match scene {
        "readers" => {
            let lock = client.rwlock(name).lease(lease).strict();
            Ok(vec![lock.read().await?, lock.read().await?])
        }
        "permits" => {
            let semaphore = client.semaphore(name, 3).lease(lease);
            Ok(vec![semaphore.acquire_many(2).await?])
        }
        _ => {
            let mutex = client.mutex(name).lease(lease).strict();
            let mutex = mutex.keep_alive(scene != "fixed");
            let first = mutex.lock().await?;
            if scene == "dead-waiter" {
                // In line behind its own process for as long as that lives.
                drop(tokio::spawn(async move {
                    mutex.lock().await.map(std::mem::forget)
                }));
            }
            Ok(vec![first])
        }
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
