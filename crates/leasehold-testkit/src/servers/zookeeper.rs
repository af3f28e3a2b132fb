//! ZooKeeper, alone or three of them, from Debian's package.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Running, directory, free_port};
use crate::poll::until;

/// Where Debian keeps Java's libraries.
const JARS: &str = "/usr/share/java";

/// One server, alone or a member of an ensemble.
#[derive(Debug)]
pub struct ZooKeeper {
    port: u16,
    dir: TempDir,
    running: Mutex<Option<Running>>,
}

/// How long a tick is. Sessions last at least two.
const TICK: Duration = Duration::from_millis(200);

impl ZooKeeper {
    /// A server of its own, ready.
    pub fn start() -> Self {
        let server = Self::configured(directory(), free_port(), "");
        server.restart();
        server.ready();
        server
    }

    fn configured(dir: TempDir, port: u16, more: &str) -> Self {
        let data = dir.path().join("data");
        std::fs::create_dir_all(&data).expect("a directory");
        let config = format!(
            "tickTime={}\nmaxSessionTimeout=120000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=ruok,srvr,wchs\n{more}",
            TICK.as_millis(),
            data.display()
        );
        std::fs::write(dir.path().join("zoo.cfg"), config).expect("a configuration");
        Self {
            port,
            dir,
            running: Mutex::default(),
        }
    }

    /// Starts it (again) on the same data. Whoever needs it ready waits with [`ready`](Self::ready).
    ///
    /// # Panics
    /// If it is not installed.
    pub fn restart(&self) {
        let jar = format!("{JARS}/zookeeper.jar");
        assert!(
            Path::new(&jar).exists(),
            "ZooKeeper is not installed: run scripts/servers zookeeper"
        );
        let config = self.dir.path().join("zoo.cfg");
        let args = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=1024",
            // Empty parents vanish under everybody's feet, not once a minute.
            "-Dznode.container.checkIntervalMs=300",
            "-cp",
            &format!("{jar}:{JARS}/slf4j-simple.jar"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &config.display().to_string(),
        ];
        let args = args.map(str::to_owned);
        let mut running = self.running.lock().expect("no panic");
        *running = None;
        *running = Some(Running::start("java", "zookeeper", self.dir.path(), &args));
    }

    /// Waits until it answers.
    pub fn ready(&self) {
        until("ZooKeeper is ready", || match self.say("srvr") {
            Ok(answer) if answer.contains("Mode:") => Ok(()),
            Ok(answer) => Err(answer),
            Err(error) => Err(format!("{error}\n{}", self.output())),
        });
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&self) {
        *self.running.lock().expect("no panic") = None;
    }

    /// Stops it in its tracks.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &*self.running.lock().expect("no panic") {
            running.signal(signal);
        }
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Whether it leads an ensemble now.
    pub fn leads(&self) -> bool {
        self.say("srvr")
            .is_ok_and(|answer| answer.contains("Mode: leader"))
    }

    /// How many requests it has received.
    ///
    /// # Panics
    /// If it does not say.
    pub fn received(&self) -> u64 {
        let answer = self.say("srvr").expect("it answers");
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("Received: "));
        line.and_then(|count| count.parse().ok()).expect("a count")
    }

    /// How many watches are set.
    ///
    /// # Panics
    /// If it does not say.
    pub fn watches(&self) -> usize {
        let answer = self.say("wchs").expect("it answers");
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("Total watches:"));
        line.and_then(|count| count.trim().parse().ok())
            .expect("a count")
    }

    /// The number of its last change.
    ///
    /// # Panics
    /// If it does not say.
    pub fn zxid(&self) -> u64 {
        let answer = self.say("srvr").expect("it answers");
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("Zxid: 0x"));
        line.and_then(|zxid| u64::from_str_radix(zxid, 16).ok())
            .expect("a number")
    }

    /// Its answer to one of the four-letter words.
    fn say(&self, word: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn output(&self) -> String {
        let running = self.running.lock().expect("no panic");
        running.as_ref().map_or_else(String::new, Running::output)
    }
}

/// Three servers that are one.
#[derive(Debug)]
pub struct Ensemble {
    /// The members.
    pub members: Vec<ZooKeeper>,
}

impl Ensemble {
    /// Three members on this machine, with a leader.
    pub fn start() -> Self {
        let mut peers = "initLimit=20\nsyncLimit=10\nstandaloneEnabled=false\n".to_owned();
        for id in 1..=3 {
            let (quorum, election) = (free_port(), free_port());
            let _ = writeln!(peers, "server.{id}=127.0.0.1:{quorum}:{election}");
        }
        let members = (1..=3).map(|id| {
            let member = ZooKeeper::configured(directory(), free_port(), &peers);
            let myid = member.dir.path().join("data/myid");
            std::fs::write(myid, id.to_string()).expect("a file");
            member.restart();
            member
        });
        let ensemble = Self {
            members: members.collect(),
        };
        ensemble.members.iter().for_each(ZooKeeper::ready);
        ensemble
    }

    /// The URL of all members, without a path.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(ZooKeeper::address).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    /// The member that leads now.
    pub fn leader(&self) -> &ZooKeeper {
        let found = until("there is a leader", || {
            let leads = self.members.iter().position(ZooKeeper::leads);
            leads.ok_or_else(|| "none".to_owned())
        });
        &self.members[found]
    }
}
