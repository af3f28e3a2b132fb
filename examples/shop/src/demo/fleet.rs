//! The servers, two instances, and nginx in front of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::nginx::Nginx;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::{Running, directory, free_port};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::http::{Client, Reply};

/// The servers that every fleet needs.
#[derive(Debug)]
pub struct Servers {
    /// The stock in Redis.
    pub redis: Redis,
    /// The stock in MariaDB.
    pub mariadb: MariaDb,
    program: PathBuf,
}

impl Servers {
    /// Starts them. The program is the one of an instance.
    pub fn start(program: impl AsRef<Path>) -> Self {
        let mariadb = MariaDb::start();
        let _ = mariadb.sql("CREATE DATABASE shop");
        Self {
            redis: Redis::start(),
            mariadb,
            program: program.as_ref().to_owned(),
        }
    }
}

/// How a fleet is started.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The engine of the locks, as `LEASEHOLD_URL`.
    pub locks: String,
    /// The work between the read and the write of a sale.
    pub think: Duration,
    /// When a lock made by hand ends by itself.
    pub expiry: Duration,
    /// The lease of Leasehold's locks.
    pub lease: Duration,
}

impl Plan {
    /// Five milliseconds of work, an expiry and a lease of ten seconds.
    pub fn on(locks: impl Into<String>) -> Self {
        Self {
            locks: locks.into(),
            think: Duration::from_millis(5),
            expiry: Duration::from_secs(10),
            lease: Duration::from_secs(10),
        }
    }
}

/// Two instances behind nginx. All of it ends with this value, or with the process.
#[derive(Debug)]
pub struct Fleet {
    /// The instances, as they were started.
    pub instances: Vec<Instance>,
    /// Where requests run.
    pub runtime: Runtime,
    nginx: Nginx,
}

/// One instance: a process.
#[derive(Debug)]
pub struct Instance {
    words: Vec<String>,
    /// Where it listens.
    pub port: u16,
    running: Option<Running>,
    home: TempDir,
}

impl Fleet {
    /// Starts two instances and nginx, and waits until they answer.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn start(servers: &Servers, plan: &Plan) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let names = ["one", "two"];
        let mut instances = names.map(|name| Instance::new(servers, plan, name));
        for instance in &mut instances {
            instance.start(&runtime);
        }
        let ports = instances.each_ref().map(|instance| instance.port);
        Self {
            nginx: Nginx::start(&ports),
            instances: instances.into(),
            runtime,
        }
    }

    /// Where nginx listens.
    pub const fn port(&self) -> u16 {
        self.nginx.port
    }

    /// One request through nginx.
    ///
    /// # Panics
    /// If there is no reply.
    pub fn send(&self, method: Method, path: &str) -> Reply {
        self.send_to(self.port(), method, path)
    }

    /// One request to what listens at a port.
    ///
    /// # Panics
    /// If there is no reply.
    pub fn send_to(&self, port: u16, method: Method, path: &str) -> Reply {
        let sent = self.runtime.block_on(Client::new(port).send(method, path));
        sent.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts an instance again.
    pub fn restart(&mut self, at: usize) {
        self.instances[at].start(&self.runtime);
    }

    /// How often the instances have read a category tree from the database.
    ///
    /// # Panics
    /// If an instance does not answer.
    pub fn loads(&self) -> u64 {
        let loads = |instance: &Instance| {
            let health = self.send_to(instance.port, Method::GET, "/health");
            health.json()["loads"].as_u64().expect("a number")
        };
        self.instances.iter().map(loads).sum()
    }
}

impl Instance {
    fn new(servers: &Servers, plan: &Plan, name: &str) -> Self {
        let port = free_port();
        let mysql = servers.mariadb.url().replace("/lab", "/shop");
        let words = [
            &format!("LEASEHOLD_URL={}", plan.locks),
            &servers.program.display().to_string(),
            "--name",
            name,
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--redis",
            &servers.redis.url(),
            "--mysql",
            &mysql,
            "--think",
            &plan.think.as_millis().to_string(),
            "--expiry",
            &plan.expiry.as_millis().to_string(),
            "--lease",
            &plan.lease.as_millis().to_string(),
            "--switches",
            "yes",
        ];
        Self {
            words: words.map(str::to_owned).into(),
            port,
            running: None,
            home: directory(),
        }
    }

    fn start(&mut self, runtime: &Runtime) {
        drop(self.running.take());
        self.running = Some(Running::start("env", "web", self.home.path(), &self.words));
        until("the instance answers", || {
            let mut client = Client::new(self.port);
            let answered = runtime.block_on(client.send(Method::GET, "/health"));
            answered
                .map(drop)
                .map_err(|error| format!("{error}; it said: {}", self.process().output()))
        });
    }

    /// Its process.
    ///
    /// # Panics
    /// If it was not started.
    pub const fn process(&self) -> &Running {
        self.running.as_ref().expect("it was started")
    }
}
