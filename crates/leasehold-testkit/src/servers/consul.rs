//! Consul, alone or three of them: the program in `LEASEHOLD_CONSUL`, or the one that `scripts/servers consul` keeps.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::certificates::certificates;
use super::{Running, directory, free_port};
use crate::poll::until;
use crate::proxy::{Fate, Proxy};

/// The token that may do everything, on a server with access control.
pub const ROOT_TOKEN: &str = "0b0a7a3e-6f6e-4a52-9d57-0c2b6f6d1a11";

/// One server, alone or one of three.
#[derive(Debug)]
pub struct Consul {
    http: u16,
    /// The port of its TLS, if it speaks that.
    https: Option<u16>,
    dir: TempDir,
    running: Mutex<Option<Running>>,
}

/// The program.
///
/// # Panics
/// If there is none.
pub fn program() -> PathBuf {
    if let Ok(program) = std::env::var("LEASEHOLD_CONSUL") {
        return program.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = cache
        .unwrap_or_else(home)
        .join("leasehold/consul-1.8.7/consul");
    assert!(
        cache.exists(),
        "Consul is not installed: run scripts/servers consul"
    );
    cache
}

/// The version of the program, as it says it.
///
/// # Panics
/// If the program does not run.
pub fn version() -> String {
    static VERSION: OnceLock<String> = OnceLock::new();
    let ask = || {
        let said = Command::new(program()).arg("version").output();
        let said = String::from_utf8_lossy(&said.expect("it runs").stdout).into_owned();
        said.lines().next().unwrap_or_default().to_owned()
    };
    VERSION.get_or_init(ask).clone()
}

/// What a server is told besides its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// The shortest session is Consul's own, 10 s, and so is the number of connections of an address, 200.
    Default,
    Secured,
    Guarded,
}

impl Consul {
    /// A server of its own, ready, with sessions from 200 ms.
    pub fn start() -> Self {
        Self::alone(Form::Plain)
    }

    /// A server whose shortest session is 10 s, and that takes 200 connections, as it is without configuration.
    pub fn with_defaults() -> Self {
        Self::alone(Form::Default)
    }

    /// A server that speaks TLS as well, on [`secured`](Self::secured), with clients that have a certificate.
    pub fn tls() -> Self {
        Self::alone(Form::Secured)
    }

    /// A server that denies what no token allows; [`ROOT_TOKEN`] allows everything.
    pub fn guarded() -> Self {
        Self::alone(Form::Guarded)
    }

    fn alone(form: Form) -> Self {
        let [server, lan] = [(); 2].map(|()| free_port());
        let server = Self::configured(form, server, lan, "\"bootstrap_expect\": 1");
        server.restart();
        server.ready();
        server
    }

    fn configured(form: Form, server: u16, lan: u16, more: &str) -> Self {
        let (dir, http) = (directory(), free_port());
        let path = dir.path().display();
        let https = (form == Form::Secured).then(free_port);
        let (shortest, connections) = match form {
            Form::Default => ("10s", 200),
            _ => ("200ms", 4000),
        };
        let tls = https.map_or(String::new(), |_| {
            certificates(dir.path());
            format!(
                r#""ca_file": "{path}/ca.crt", "cert_file": "{path}/server.crt", "key_file": "{path}/server.key",
                "verify_incoming_https": true,"#
            )
        });
        // Versions refuse options that they do not know.
        let old = version().contains("v1.8.");
        let (grpc_tls, management) = match old {
            true => ("", "master"),
            false => (r#""grpc_tls": -1, "#, "initial_management"),
        };
        let acl = match form {
            Form::Guarded => format!(
                r#""acl": {{"enabled": true, "default_policy": "deny",
                "tokens": {{"{management}": "{ROOT_TOKEN}", "agent": "{ROOT_TOKEN}"}}}},"#
            ),
            _ => String::new(),
        };
        let https_port = https.map_or(-1, i32::from);
        let config = format!(
            r#"{{"server": true, "data_dir": "{path}/data", "node_name": "n{http}", "datacenter": "dc1",
            "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "log_level": "WARN", "disable_update_check": true,
            "session_ttl_min": "{shortest}", "leave_on_terminate": false, "skip_leave_on_interrupt": true, {tls} {acl}
            "addresses": {{"http": "127.0.0.1 unix://{path}/http.sock"}},
            "performance": {{"raft_multiplier": 1}}, "limits": {{"http_max_conns_per_client": {connections}}},
            "ports": {{"http": {http}, "https": {https_port}, "dns": -1, "grpc": -1, {grpc_tls}"serf_wan": -1,
            "server": {server}, "serf_lan": {lan}}}, {more}}}"#
        );
        std::fs::write(dir.path().join("config.json"), config).expect("a configuration");
        Self {
            http,
            https,
            dir,
            running: Mutex::default(),
        }
    }

    /// Starts it (again) on the same data.
    ///
    /// # Panics
    /// If it is not installed.
    pub fn restart(&self) {
        let program = program().display().to_string();
        let config = self.dir.path().join("config.json").display().to_string();
        let _ = std::fs::remove_file(self.dir.path().join("http.sock"));
        let args = [
            "CHECKPOINT_DISABLE=1",
            "GOMAXPROCS=2",
            &program,
            "agent",
            "-config-file",
            &config,
        ];
        let args = args.map(str::to_owned);
        let mut running = self.running.lock().expect("no panic");
        *running = None;
        *running = Some(Running::start("env", "consul", self.dir.path(), &args));
    }

    /// Waits until it has a leader and takes sessions.
    pub fn ready(&self) {
        until("Consul is ready", || {
            let leader = self.ask("GET", "status/leader", "");
            match leader {
                Ok(leader) if leader.contains(':') => {}
                other => return Err(format!("{other:?}\n{}", self.output())),
            }
            let made = self.ask(
                "PUT",
                "session/create",
                r#"{"NodeChecks": [], "TTL": "10s"}"#,
            );
            match made {
                Ok(made) if made.contains("ID") => Ok(()),
                other => Err(format!("{other:?}\n{}", self.output())),
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

    /// Its port for HTTP on the loopback address.
    pub fn port(&self) -> u16 {
        self.http
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.http)
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        format!("consul://{}", self.address())
    }

    /// Its URL through TLS, with this path.
    ///
    /// # Panics
    /// If it was not started with [`tls`](Self::tls).
    pub fn secured(&self, path: &str) -> String {
        let (port, dir) = (
            self.https.expect("a server with TLS"),
            self.dir.path().display(),
        );
        let own = format!("cert={dir}/server.crt&key={dir}/server.key");
        format!("consuls://localhost:{port}{path}?{own}&ca={dir}/ca.crt")
    }

    /// Its URL through its Unix socket.
    pub fn socket(&self) -> String {
        format!("consul+unix:{}/http.sock", self.dir.path().display())
    }

    /// The sessions of our clients.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn sessions(&self) -> Vec<String> {
        let listed = self.ask("GET", "session/list", "").expect("it answers");
        let ours = listed
            .split('{')
            .filter(|one| one.contains(r#""Name":"leasehold""#));
        let id = |one: &str| Some(one.split_once(r#""ID":""#)?.1.split_once('"')?.0.to_owned());
        ours.filter_map(id).collect()
    }

    /// The session that has a key.
    pub fn holder(&self, key: &str) -> Option<String> {
        let listed = self.ask("GET", &format!("kv/{key}"), "").ok()?;
        let session = listed.split_once(r#""Session":""#)?.1;
        Some(session.split_once('"')?.0.to_owned())
    }

    /// The body of its answer to a request below `/v1/`.
    ///
    /// # Errors
    /// If it cannot be reached, or answers with something else than 200.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).map_err(text)?;
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .map_err(text)?;
        let length = body.len();
        let request = format!(
            "{method} /v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Consul-Token: {ROOT_TOKEN}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        // A server without access control does not look at the token.
        stream.write_all(request.as_bytes()).map_err(text)?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).map_err(text)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("half an answer")?;
        match head.starts_with("HTTP/1.1 200") {
            true => Ok(body.to_owned()),
            false => Err(format!("{head}\n{body}")),
        }
    }

    fn output(&self) -> String {
        let running = self.running.lock().expect("no panic");
        running.as_ref().map_or_else(String::new, Running::output)
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Three servers that are one.
#[derive(Debug)]
pub struct Three {
    /// The members.
    pub members: Vec<Consul>,
    /// Before each member, for clients.
    pub doors: Vec<Proxy>,
    ports: Vec<u16>,
}

impl Three {
    /// Three members on this machine, with a leader.
    pub fn start() -> Self {
        let ports: [[u16; 2]; 3] = std::array::from_fn(|_| [free_port(), free_port()]);
        let join: Vec<_> = ports
            .iter()
            .map(|[_, lan]| format!("\"127.0.0.1:{lan}\""))
            .collect();
        let more = format!(
            r#""bootstrap_expect": 3, "retry_interval": "1s", "retry_join": [{}]"#,
            join.join(",")
        );
        let members =
            ports.map(|[server, lan]| Consul::configured(Form::Plain, server, lan, &more));
        let members = Vec::from(members);
        members.iter().for_each(Consul::restart);
        members.iter().for_each(Consul::ready);
        let doors = members
            .iter()
            .map(|member| Proxy::before(member.port()))
            .collect();
        Self {
            members,
            doors,
            ports: ports.map(|[server, _]| server).to_vec(),
        }
    }

    /// The URL of all members, without a path.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(Consul::address).collect();
        format!("consul://{}", hosts.join(","))
    }

    /// The URL of all members through their doors, without a path.
    pub fn through_doors(&self) -> String {
        let hosts: Vec<_> = self
            .doors
            .iter()
            .map(|door| format!("127.0.0.1:{}", door.port))
            .collect();
        format!("consul://{}", hosts.join(","))
    }

    /// Nothing passes any more between clients and a member.
    pub fn hide(&self, member: usize) {
        self.doors[member].set_both(Fate::Hold);
    }

    /// Which member leads now, as the others say.
    pub fn leads(&self) -> usize {
        until("there is a leader", || {
            let mut said = self
                .members
                .iter()
                .map(|member| member.ask("GET", "status/leader", ""));
            let leader = said.find_map(|said| {
                let said = said.ok()?;
                self.ports
                    .iter()
                    .position(|port| said.contains(&format!(":{port}\"")))
            });
            leader.ok_or_else(|| "none".to_owned())
        })
    }

    /// The member that leads now.
    pub fn leader(&self) -> &Consul {
        &self.members[self.leads()]
    }
}
