//! etcd, alone or three members of a cluster, from Debian's package, or the programs in the directory `LEASEHOLD_ETCD`.

use std::process::{Command, Output};
use std::sync::Mutex;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Running, certificates::certificates, directory, free_port};
use crate::poll::until;
use crate::proxy::{Fate, Proxy};

/// A directory with the programs `etcd` and `etcdctl` of another version.
const OTHER: &str = "LEASEHOLD_ETCD";

fn program(name: &str) -> String {
    std::env::var(OTHER).map_or_else(|_| name.to_owned(), |dir| format!("{dir}/{name}"))
}

/// One server, alone or a member of a cluster.
#[derive(Debug)]
pub struct Etcd {
    port: u16,
    dir: TempDir,
    tls: bool,
    args: Vec<String>,
    running: Mutex<Option<Running>>,
}

impl Etcd {
    /// A server of its own, ready.
    pub fn start() -> Self {
        Self::alone(directory(), false).started()
    }

    /// A server that speaks TLS, with clients that have a certificate.
    pub fn tls() -> Self {
        let dir = directory();
        certificates(dir.path());
        Self::alone(dir, true).started()
    }

    /// A server whose logins are JSON web tokens: each is of one state of the users and their rights.
    ///
    /// # Panics
    /// If its secret cannot be written.
    pub fn with_web_tokens() -> Self {
        Self::of_web_tokens("")
    }

    /// The same; a token ends after two seconds.
    pub fn with_short_web_tokens() -> Self {
        Self::of_web_tokens(",ttl=2s")
    }

    /// A server whose simple tokens end when they were not used for two seconds.
    pub fn with_short_tokens() -> Self {
        let mut server = Self::alone(directory(), false);
        server.args.push("--auth-token-ttl=2".to_owned());
        server.started()
    }

    fn of_web_tokens(more: &str) -> Self {
        let mut server = Self::alone(directory(), false);
        let secret = server.dir.path().join("secret");
        std::fs::write(&secret, "a secret of the tests").expect("written");
        let tokens = format!("jwt,sign-method=HS256,priv-key={}{more}", secret.display());
        server.args.extend(["--auth-token".to_owned(), tokens]);
        server.started()
    }

    fn alone(dir: TempDir, tls: bool) -> Self {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let cluster = format!("one={peer}");
        Self::configured(dir, tls, "one", &peer, &peer, &cluster)
    }

    fn configured(
        dir: TempDir,
        tls: bool,
        name: &str,
        listens: &str,
        advertises: &str,
        cluster: &str,
    ) -> Self {
        let port = free_port();
        let scheme = if tls { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{port}");
        let mut args: Vec<String> = [
            ("--name", name),
            ("--data-dir", "data"),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", listens),
            ("--initial-advertise-peer-urls", advertises),
            ("--initial-cluster", cluster),
            ("--log-level", "warn"),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value.to_owned()])
        .collect();
        args.push("--unsafe-no-fsync".to_owned());
        if tls {
            let own = ["--cert-file", "server.crt", "--key-file", "server.key"];
            let others = ["--trusted-ca-file", "ca.crt", "--client-cert-auth"];
            args.extend(own.into_iter().chain(others).map(str::to_owned));
        }
        Self {
            port,
            dir,
            tls,
            args,
            running: Mutex::default(),
        }
    }

    fn started(self) -> Self {
        self.restart();
        self.ready();
        self
    }

    /// Starts it (again) on the same data. A caller that needs it ready waits with [`ready`](Self::ready).
    ///
    /// # Panics
    /// If it is not installed.
    pub fn restart(&self) {
        let etcd = program("etcd");
        let mut running = self.running.lock().expect("no panic");
        *running = None;
        *running = Some(Running::start(&etcd, "etcd", self.dir.path(), &self.args));
    }

    /// Waits until it answers, with a majority behind it.
    pub fn ready(&self) {
        until("etcd is ready", || {
            let asked = self.run(&["get", "ready"]);
            match asked.status.success() {
                true => Ok(()),
                false => Err(format!("{asked:?}\n{}", self.output())),
            }
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

    /// Its URL, with the certificates that it asks for.
    pub fn url(&self) -> String {
        let dir = self.dir.path().display();
        match self.tls {
            false => format!("etcd://{}", self.address()),
            true => format!(
                "etcds://localhost:{}?ca={dir}/ca.crt&cert={dir}/server.crt&key={dir}/server.key",
                self.port
            ),
        }
    }

    /// `etcdctl`, at this server.
    pub fn ctl(&self) -> Command {
        let mut ctl = Command::new(program("etcdctl"));
        let scheme = if self.tls { "https" } else { "http" };
        let _ = ctl.env("ETCDCTL_API", "3").current_dir(self.dir.path());
        let _ = ctl.arg(format!("--endpoints={scheme}://127.0.0.1:{}", self.port));
        if self.tls {
            let _ = ctl.args(["--cacert=ca.crt", "--cert=server.crt", "--key=server.key"]);
        }
        ctl
    }

    fn run(&self, args: &[&str]) -> Output {
        let done = self.ctl().arg("--command-timeout=2s").args(args).output();
        done.expect("etcdctl is not installed: run scripts/servers etcd")
    }

    /// The answer of `etcdctl`.
    ///
    /// # Panics
    /// If it fails.
    pub fn say(&self, args: &[&str]) -> String {
        let done = self.run(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "etcdctl {args:?}: {said}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// The keys that begin with this.
    pub fn keys(&self, start: &str) -> Vec<String> {
        let keys = self.say(&["get", start, "--prefix", "--keys-only"]);
        let keys = keys.lines().filter(|line| !line.is_empty());
        keys.map(str::to_owned).collect()
    }

    /// Its version, as it says it.
    pub fn version(&self) -> String {
        let said = Command::new(program("etcd")).arg("--version").output();
        let said = said.expect("it starts").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        said.lines().next().unwrap_or_default().to_owned()
    }

    /// The revision of its last change.
    ///
    /// # Panics
    /// If it says none.
    pub fn revision(&self) -> i64 {
        let said = self.say(&["get", "none", "-w", "fields"]);
        let mut lines = said.lines();
        let revision = lines.find_map(|line| line.strip_prefix("\"Revision\" : "));
        revision
            .and_then(|one| one.parse().ok())
            .expect("a revision")
    }

    /// Whether it leads a cluster now.
    pub fn leads(&self) -> bool {
        let status = self.run(&["endpoint", "status", "-w", "fields"]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        let number = |field: &str| {
            let start = format!("\"{field}\" : ");
            let found = said.lines().find_map(|line| line.strip_prefix(&start));
            found.map(str::to_owned)
        };
        let (leader, own) = (number("Leader"), number("MemberID"));
        status.status.success() && leader.is_some() && leader == own
    }

    fn output(&self) -> String {
        let running = self.running.lock().expect("no panic");
        running.as_ref().map_or_else(String::new, Running::output)
    }
}

/// Three members.
#[derive(Debug)]
pub struct Cluster {
    /// The members.
    pub members: Vec<Etcd>,
    /// Before each member, for clients; none if they connect directly.
    pub doors: Vec<Proxy>,
    /// Before each member, for the other members.
    links: Vec<Proxy>,
}

impl Cluster {
    /// Three members on this machine, with a leader.
    pub fn start() -> Self {
        Self::of(false)
    }

    /// Three members that hear each other, and are heard by clients, through proxies alone.
    pub fn behind_proxies() -> Self {
        let mut cluster = Self::of(true);
        let members = cluster.members.iter();
        cluster.doors = members.map(|member| Proxy::before(member.port())).collect();
        cluster
    }

    fn of(proxied: bool) -> Self {
        let listens: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let links: Vec<_> = match proxied {
            true => listens.iter().map(|port| Proxy::before(*port)).collect(),
            false => Vec::new(),
        };
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let reached = |at: usize| url(links.get(at).map_or(listens[at], |link| link.port));
        let all: Vec<_> = (0..3).map(|at| format!("m{at}={}", reached(at))).collect();
        let member = |at: usize| {
            let (name, own) = (format!("m{at}"), url(listens[at]));
            let member = Etcd::configured(
                directory(),
                false,
                &name,
                &own,
                &reached(at),
                &all.join(","),
            );
            member.restart();
            member
        };
        let members: Vec<_> = (0..3).map(member).collect();
        members.iter().for_each(Etcd::ready);
        Self {
            members,
            doors: Vec::new(),
            links,
        }
    }

    /// The URL of all members, through their doors if they have some.
    pub fn url(&self) -> String {
        self.url_of(&[0, 1, 2])
    }

    /// The URL of these members.
    pub fn url_of(&self, members: &[usize]) -> String {
        let port = |member: &usize| match self.doors.get(*member) {
            Some(door) => door.port,
            None => self.members[*member].port(),
        };
        let hosts = members
            .iter()
            .map(|member| format!("127.0.0.1:{}", port(member)));
        format!("etcd://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Requests to a member do not arrive any more, nor do its answers. Its own requests do:
    /// followers and the leader speak over connections of either side, so a leader that is cut off like this loses its
    /// majority, and a follower its leader.
    pub fn isolate(&self, member: usize) {
        self.links[member].set_both(Fate::Hold);
    }

    /// Messages that were held back arrive, and all later ones.
    pub fn heal(&self, member: usize) {
        self.links[member].set_both(Fate::Pass);
    }

    /// The member that leads now.
    pub fn leader(&self) -> &Etcd {
        &self.members[self.leads()]
    }

    /// Which member leads now.
    pub fn leads(&self) -> usize {
        until("there is a leader", || {
            let leads = self.members.iter().position(Etcd::leads);
            leads.ok_or_else(|| "none".to_owned())
        })
    }
}
