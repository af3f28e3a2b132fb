//! ZooKeeper, alone or three of them, from Debian's package, or from the jars in the directory `LEASEHOLD_ZOOKEEPER`.

mod ensemble;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

pub use self::ensemble::Ensemble;
use super::wall::Wall;
use super::{Running, certificates::certificates_for, directory, free_port};
use crate::poll::until;

/// Where Debian keeps Java's libraries.
const JARS: &str = "/usr/share/java";

/// One server, alone or a member of an ensemble.
#[derive(Debug)]
pub struct ZooKeeper {
    port: u16,
    /// The port of its TLS, if it speaks that.
    secured: Option<u16>,
    dir: TempDir,
    wall: Option<Wall>,
    running: Mutex<Option<Running>>,
}

/// A directory with the jars of another version of the server, and of all it needs.
const OTHER: &str = "LEASEHOLD_ZOOKEEPER";

fn jars() -> String {
    if let Ok(other) = std::env::var(OTHER) {
        return format!("{other}/*");
    }
    // The last ones are for TLS.
    [
        "zookeeper",
        "slf4j-simple",
        "netty-codec",
        "netty-resolver",
        "netty-transport-native-unix-common",
    ]
    .map(|name| format!("{JARS}/{name}.jar"))
    .join(":")
}

/// How long a tick is. Sessions last at least two.
const TICK: Duration = Duration::from_millis(200);

impl ZooKeeper {
    /// A server of its own, ready.
    pub fn start() -> Self {
        Self::configured(directory(), free_port(), "").started()
    }

    /// A server that speaks TLS as well, on [`secured`](Self::secured), with clients that have a certificate.
    pub fn tls() -> Self {
        Self::tls_as("DNS:localhost,IP:127.0.0.1")
    }

    /// As [`tls`](Self::tls), with a certificate for these names.
    pub fn tls_as(names: &str) -> Self {
        let (dir, port) = (directory(), free_port());
        certificates_for(dir.path(), names);
        let file = |name: &str| dir.path().join(name).display().to_string();
        let read = |name: &str| std::fs::read_to_string(file(name)).expect("readable");
        let both = read("server.key") + &read("server.crt");
        std::fs::write(file("server.pem"), both).expect("writable");
        let (own, trusted) = (file("server.pem"), file("ca.pem"));
        std::fs::write(&trusted, read("ca.crt")).expect("writable");
        let more = format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={own}\nssl.trustStore.location={trusted}\nssl.clientAuth=need\n"
        );
        let mut server = Self::configured(dir, free_port(), &more);
        server.secured = Some(port);
        server.started()
    }

    /// Its URL through TLS, with this path.
    ///
    /// # Panics
    /// If it was not started with [`tls`](Self::tls).
    pub fn secured(&self, path: &str) -> String {
        let port = self.secured.expect("a server with TLS");
        let dir = self.dir.path().display();
        let own = format!("cert={dir}/server.crt&key={dir}/server.key");
        format!("zookeeper://localhost:{port}{path}?tls=1&{own}&ca={dir}/ca.crt")
    }

    /// A server whose wall clock can be set.
    pub fn with_clock() -> Self {
        let mut server = Self::configured(directory(), free_port(), "");
        server.wall = Some(Wall::new(server.dir.path()));
        server.started()
    }

    fn started(self) -> Self {
        self.restart();
        self.ready();
        self
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
            secured: None,
            dir,
            wall: None,
            running: Mutex::default(),
        }
    }

    /// Starts it (again) on the same data. A caller that needs it ready waits with [`ready`](Self::ready).
    ///
    /// # Panics
    /// If it is not installed.
    pub fn restart(&self) {
        let jar = format!("{JARS}/zookeeper.jar");
        assert!(
            Path::new(&jar).exists() || std::env::var(OTHER).is_ok(),
            "ZooKeeper is not installed: run scripts/servers zookeeper"
        );
        let config = self.dir.path().join("zoo.cfg");
        let mut args = self
            .wall
            .as_ref()
            .map(Wall::environment)
            .unwrap_or_default();
        let jars = jars();
        let config = config.display().to_string();
        let java = [
            "java",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=1024",
            // Empty parents vanish during the test, not once a minute.
            "-Dznode.container.checkIntervalMs=300",
            "-cp",
            &jars,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &config,
        ];
        args.extend(java.map(str::to_owned));
        let mut running = self.running.lock().expect("no panic");
        *running = None;
        *running = Some(Running::start("env", "zookeeper", self.dir.path(), &args));
    }

    /// Waits until it answers.
    pub fn ready(&self) {
        until("ZooKeeper is ready", || match self.say("srvr") {
            Ok(answer) if answer.contains("Mode:") => Ok(()),
            Ok(answer) => Err(answer),
            Err(error) => Err(format!("{error}\n{}", self.output())),
        });
        // The port for TLS is opened after the other one.
        if let Some(port) = self.secured {
            until("ZooKeeper takes TLS", || {
                let connected = TcpStream::connect(("127.0.0.1", port));
                connected.map(drop).map_err(|error| error.to_string())
            });
        }
    }

    /// Kills it, sets the next sequences below nodes, and starts it again.
    ///
    /// # Panics
    /// If its data cannot be changed.
    pub fn restart_with_sequences(&self, sequences: &[(&str, i32)]) {
        self.kill();
        let source = self.dir.path().join("Sequence.java");
        std::fs::write(&source, include_str!("Sequence.java")).expect("writable");
        let mut java = Command::new("java");
        let _ = java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        let _ = java.args(["-Dzookeeper.digest.enabled=false", "-cp", &jars()]);
        let _ = java.arg(&source).arg(self.dir.path().join("data"));
        for (node, next) in sequences {
            let _ = java.args([node, &*next.to_string()]);
        }
        let done = java.output();
        let done = done.expect("java is not installed: run scripts/servers zookeeper");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        self.restart();
        self.ready();
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

    /// Sets its wall clock so many seconds ahead of, or behind, ours.
    ///
    /// # Panics
    /// If it has no clock of its own.
    pub fn step(&self, seconds: i64) {
        self.wall.as_ref().expect("a clock of its own").set(seconds);
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
    pub fn received(&self) -> u64 {
        self.number("srvr", "Received: ", 10)
    }

    /// How many answers and events it has sent.
    pub fn sent(&self) -> u64 {
        self.number("srvr", "Sent: ", 10)
    }

    /// How many connections it has, but for the one that asks.
    pub fn connections(&self) -> u64 {
        self.number("srvr", "Connections: ", 10).saturating_sub(1)
    }

    /// How many watches are set.
    pub fn watches(&self) -> usize {
        usize::try_from(self.number("wchs", "Total watches:", 10)).expect("a count")
    }

    /// Its version, as it says it.
    pub fn version(&self) -> String {
        let answer = self.say("srvr").expect("it answers");
        let version = answer.lines().next().unwrap_or_default();
        version.trim_start_matches("Zookeeper version: ").to_owned()
    }

    /// The number of its last change.
    pub fn zxid(&self) -> u64 {
        self.number("srvr", "Zxid: 0x", 16)
    }

    /// A number that it says, by the words before it.
    fn number(&self, word: &str, before: &str, radix: u32) -> u64 {
        let answer = self.say(word).expect("it answers");
        let mut lines = answer.lines();
        let said = lines.find_map(|line| line.strip_prefix(before));
        let number = said.and_then(|said| u64::from_str_radix(said.trim(), radix).ok());
        number.unwrap_or_else(|| panic!("no number in {answer}"))
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
