//! Redis: one server, with TLS, below Sentinel, as a Cluster.

mod cluster;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

pub use self::cluster::Cluster;
use super::certificates::certificates;
use super::wall::Wall;
use super::{Running, directory, free_port};
use crate::poll::until;

/// One `redis-server`.
#[derive(Debug)]
pub struct Redis {
    home: TempDir,
    /// Where it listens on the loopback address.
    pub port: u16,
    args: Vec<String>,
    tls: bool,
    /// Its own wall clock, if it has one.
    wall: Option<Wall>,
    /// None while it is stopped.
    running: Option<Running>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Redis {
    /// A server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::with("--save  --appendonly no")
    }

    /// A server that has every write on disk before it answers.
    pub fn durable() -> Self {
        Self::with("--save  --appendonly yes --appendfsync always")
    }

    /// A server with these settings besides the usual ones.
    pub fn with(settings: &str) -> Self {
        Self::launch(directory(), free_port(), settings, false, None)
    }

    /// A server whose wall clock can be set ([`step`](Self::step)).
    pub fn with_clock() -> Self {
        Self::clocked("--save  --appendonly no")
    }

    /// A server that has every write on disk before it answers, and whose wall clock can be set.
    pub fn durable_with_clock() -> Self {
        Self::clocked("--save  --appendonly yes --appendfsync always")
    }

    fn clocked(settings: &str) -> Self {
        let home = directory();
        let wall = Wall::new(home.path());
        Self::launch(home, free_port(), settings, false, Some(wall))
    }

    /// Sets its wall clock so many seconds ahead of, or behind, ours.
    ///
    /// # Panics
    /// If it was not started [`with_clock`](Self::with_clock).
    pub fn step(&self, seconds: i64) {
        self.wall.as_ref().expect("a clock of its own").set(seconds);
    }

    /// Lets its wall clock stand still at so many microseconds, but for a step with every look of the server at it;
    /// 0 lets it go again.
    ///
    /// # Panics
    /// If it was not started [`with_clock`](Self::with_clock).
    pub fn stop_clock_at(&self, micros: u64, step: u64) {
        let wall = self.wall.as_ref().expect("a clock of its own");
        wall.stop_at(micros.cast_signed(), step.cast_signed());
    }

    /// A server that speaks TLS only. [`ca`](Self::ca) is the authority to trust.
    pub fn tls() -> Self {
        let home = directory();
        certificates(home.path());
        let port = free_port();
        let dir = home.path().display();
        let settings = format!(
            "--tls-port {port} --tls-cert-file {dir}/server.crt --tls-key-file {dir}/server.key \
             --tls-ca-cert-file {dir}/ca.crt --tls-auth-clients optional --save "
        );
        Self::launch(home, port, &settings, true, None)
    }

    fn launch(home: TempDir, port: u16, settings: &str, tls: bool, wall: Option<Wall>) -> Self {
        let dir = home.path().display();
        let usual = format!(
            "--port {} --bind 127.0.0.1 --dir {dir} --unixsocket {dir}/socket --enable-debug-command yes",
            if tls { 0 } else { port }
        );
        let mut args = words(&usual);
        // An empty value is a value: `--save` alone means to save nothing.
        for word in settings.split("--").skip(1) {
            let (name, value) = word.trim_start().split_once(' ').unwrap_or((word, ""));
            args.push(format!("--{name}"));
            match words(value) {
                values if values.is_empty() => args.push(String::new()),
                values => args.extend(values),
            }
        }
        let mut redis = Self {
            home,
            port,
            args,
            tls,
            wall,
            running: None,
        };
        redis.restart();
        redis
    }

    /// Starts it again, with what is on its disk, and waits until it answers.
    pub fn restart(&mut self) {
        drop(self.running.take());
        let running = match &self.wall {
            None => Running::start("redis-server", "redis", self.home.path(), &self.args),
            Some(wall) => {
                let mut args = wall.environment();
                args.push("redis-server".to_owned());
                args.extend(self.args.iter().cloned());
                Running::start("env", "redis", self.home.path(), &args)
            }
        };
        self.running = Some(running);
        until("the server answers", || match self.cli("PING").trim() {
            "PONG" => Ok(()),
            other if other.contains("NOAUTH") => Ok(()),
            other => Err(format!("{other}; it said: {}", self.output())),
        });
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Stops it, as a machine that hangs, or lets it go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.running
            .as_ref()
            .map(Running::output)
            .unwrap_or_default()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match self.tls {
            true => format!(
                "rediss://localhost:{}?ca={}",
                self.port,
                self.ca().display()
            ),
            false => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Its URL by its Unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}/socket", self.home.path().display())
    }

    /// The authority to trust.
    pub fn ca(&self) -> PathBuf {
        self.home.path().join("ca.crt")
    }

    /// A command, and what `redis-cli` prints of the answer.
    pub fn cli(&self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').collect();
        self.cli_args(&words)
    }

    /// A command with arguments that may hold spaces.
    ///
    /// # Panics
    /// If `redis-cli` is not installed.
    pub fn cli_args(&self, args: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        let _ = cli.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if self.tls {
            let _ = cli.args(["--tls", "--cacert"]).arg(self.ca());
        }
        let output = cli.args(args).output().expect("redis-cli runs");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A master with two replicas, watched by three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    /// The master comes first, as it began.
    pub nodes: Vec<Redis>,
    sentinels: Vec<(TempDir, u16, Running)>,
}

impl Sentinels {
    /// Starts all six and waits until they know each other. A master that says nothing for a second is replaced.
    pub fn start() -> Self {
        Self::with(Duration::from_secs(1))
    }

    /// For tests that are not about failovers: a master that a busy machine keeps waiting stays the master.
    pub fn steady() -> Self {
        Self::with(Duration::from_secs(120))
    }

    fn with(down_after: Duration) -> Self {
        let master = Redis::start();
        let replica = format!(
            "--save  --replicaof 127.0.0.1 {} --repl-diskless-sync-delay 0",
            master.port
        );
        let nodes = vec![Redis::with(&replica), Redis::with(&replica)];
        let nodes: Vec<_> = std::iter::once(master).chain(nodes).collect();
        let sentinels = (0..3)
            .map(|_| sentinel(nodes[0].port, down_after))
            .collect();
        let started = Self { nodes, sentinels };
        until("the replicas have caught up", || {
            let seen = started.nodes[0].cli("INFO replication");
            let caught_up = seen.matches("state=online").count() == 2;
            caught_up.then_some(()).ok_or(seen)
        });
        until("the sentinels know each other and the replicas", || {
            let seen: Vec<_> = started
                .sentinels
                .iter()
                .map(|(_, port, _)| masters(*port))
                .collect();
            let all =
                |text: &String| text.contains("slaves=2,sentinels=3") && text.contains("status=ok");
            seen.iter()
                .all(all)
                .then_some(())
                .ok_or_else(|| seen.join("\n"))
        });
        started
    }

    /// The URL of the master they agree on.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .sentinels
            .iter()
            .map(|(_, port, _)| format!("127.0.0.1:{port}"))
            .collect();
        format!("redis+sentinel://{}/main", hosts.join(","))
    }

    /// The ports of the sentinels and of the nodes.
    pub fn ports(&self) -> Vec<u16> {
        let sentinels = self.sentinels.iter().map(|(_, port, _)| *port);
        let nodes = self.nodes.iter().map(|node| node.port);
        sentinels.chain(nodes).collect()
    }

    /// The port of the master, as a sentinel says.
    pub fn master(&self) -> u16 {
        master(self.sentinels[0].1)
    }

    /// What the sentinels say of themselves and of the master: whether they watch, and whom.
    pub fn said(&self) -> String {
        let sentinels = self.sentinels.iter();
        sentinels.map(|(_, port, _)| masters(*port)).collect()
    }

    /// The port of the master, if all sentinels say the same.
    pub fn agreed_master(&self) -> Option<u16> {
        let said = self.master();
        let same = |(_, port, _): &(TempDir, u16, Running)| master(*port) == said;
        self.sentinels.iter().all(same).then_some(said)
    }
}

fn master(sentinel: u16) -> u16 {
    let answer = ask(sentinel, "SENTINEL get-master-addr-by-name main");
    let port = answer.lines().nth(1);
    port.and_then(|port| port.parse().ok()).unwrap_or(0)
}

fn masters(port: u16) -> String {
    ask(port, "INFO sentinel")
}

fn ask(port: u16, command: &str) -> String {
    let mut cli = Command::new("redis-cli");
    let output = cli
        .args(["-p", &port.to_string()])
        .args(command.split(' '))
        .output();
    String::from_utf8_lossy(&output.expect("redis-cli runs").stdout).into_owned()
}

fn sentinel(master: u16, down_after: Duration) -> (TempDir, u16, Running) {
    let (home, port) = (directory(), free_port());
    let config = home.path().join("sentinel.conf");
    // A failover that did not succeed, say for a replica that was not heard of lately, is tried again after twice its
    // time.
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds main {}\nsentinel failover-timeout main 2000\n",
        home.path().display(),
        down_after.as_millis()
    );
    std::fs::write(&config, text).expect("writable");
    let args = [config.display().to_string()];
    let running = Running::start("redis-sentinel", "redis", home.path(), &args);
    (home, port, running)
}
