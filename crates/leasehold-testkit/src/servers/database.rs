//! Shared by the servers of databases: a user, a directory, a port, and being started again.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::certificates::certificates;
use super::wall::Wall;
use super::{Running, directory, free_port};
use crate::disk::Disk;
use crate::poll::until;

/// How a server is started, besides the usual.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup<'a> {
    /// Settings of the server, in its own words.
    pub settings: &'a [&'a str],
    /// Whether its wall clock can be set.
    pub clock: bool,
    /// Whether it speaks TLS, with a certificate of an authority of its own.
    pub tls: bool,
    /// Its files are on a disk of so many megabytes.
    pub disk: Option<u32>,
}

/// The directory of a server, and its process. Every server of a database is one of these and a little more.
#[derive(Debug)]
pub struct Host {
    user: &'static str,
    /// Where it listens on the loopback address.
    pub port: u16,
    tls: bool,
    ask: Ask,
    wall: Option<Wall>,
    /// None while it is stopped.
    running: Option<Running>,
    disk: Option<Disk>,
    home: TempDir,
}

/// Runs a statement on the server at a port with the program that its package has for that.
pub(super) type Ask = fn(u16, &str) -> Result<String, String>;

impl Host {
    /// A directory that belongs to the user a server runs as, with what the setup asks for.
    pub(super) fn new(user: &'static str, setup: &Setup<'_>, ask: Ask) -> Self {
        let home = directory();
        if setup.tls {
            certificates(home.path());
        }
        let wall = setup.clock.then(|| Wall::new(home.path()));
        let size = setup.disk.map(|megabytes| megabytes << 10);
        let disk = size.map(|size| Disk::small(&home.path().join("disk"), size));
        give(home.path(), user);
        Self {
            user,
            port: free_port(),
            tls: setup.tls,
            ask,
            wall,
            running: None,
            disk,
            home,
        }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where the data are.
    pub(super) fn data(&self) -> PathBuf {
        match &self.disk {
            Some(disk) => disk.path().join("data"),
            None => self.home().join("data"),
        }
    }

    /// Runs a program of the server's package to its end.
    pub(super) fn run(&self, words: &[&str]) {
        let words: Vec<_> = as_user(self.user)
            .into_iter()
            .chain(words.iter().map(|&word| word.to_owned()))
            .collect();
        let done = Command::new(&words[0]).args(&words[1..]).output();
        let done = done.unwrap_or_else(|error| panic!("{} does not run: {error}", words[0]));
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(done.status.success(), "{words:?}: {text}");
    }

    /// Starts the server, or starts it again, and waits until it answers.
    pub(super) fn start(&mut self, words: &[String]) {
        drop(self.running.take());
        let mut all = as_user(self.user);
        if let Some(wall) = &self.wall {
            all.push("env".to_owned());
            all.extend(wall.environment());
        }
        all.extend_from_slice(words);
        until("the server answers", || {
            // The processes of a killed server may still be leaving; then it does not start yet.
            if !self.is_running() {
                let server = Running::start(&all[0], self.user, self.home.path(), &all[1..]);
                self.running = Some(server);
            }
            match self.try_sql("SELECT 1") {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error}; it said: {}", self.output())),
            }
        });
    }

    /// Whether its main process is there.
    pub fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(Running::is_running)
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Stops its main process, or lets it go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Stops all its processes, as a machine that hangs, or lets them go on.
    ///
    /// # Panics
    /// If it was killed.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        self.running.as_ref().expect("it runs").signal_all(signal);
    }

    /// Sets its wall clock so many seconds ahead of, or behind, ours.
    ///
    /// # Panics
    /// If it has no clock of its own.
    pub fn step(&self, seconds: i64) {
        self.wall.as_ref().expect("a clock of its own").set(seconds);
    }

    /// The small disk with its files.
    ///
    /// # Panics
    /// If it has none.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a disk of its own")
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        let running = self.running.as_ref();
        running.map(Running::output).unwrap_or_default()
    }

    /// Runs a statement; answers with what it printed.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// The message of the package's client.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        (self.ask)(self.port, statement)
    }

    /// The end of its URL.
    pub(super) fn options(&self) -> String {
        match self.tls {
            true => format!(
                "?sslmode=verify-full&sslrootcert={}/ca.crt",
                self.home().display()
            ),
            false => String::new(),
        }
    }
}

/// The output of a client program, or its error.
pub(super) fn printed(mut client: Command, package: &str) -> Result<String, String> {
    let done = client.output().unwrap_or_else(|error| {
        panic!("{client:?} does not run ({error}): run scripts/servers {package}")
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout)),
        false => Err(text(&done.stderr)),
    }
}

/// The words that run a program as the user of a package, if we are root: servers refuse to run as root.
pub(super) fn as_user(user: &str) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let words = [
        "setpriv",
        "--reuid",
        user,
        "--regid",
        user,
        "--clear-groups",
    ];
    words.map(str::to_owned).into()
}

/// Gives a directory to the user that its server runs as.
pub(super) fn give(dir: &Path, user: &str) {
    if rustix::process::geteuid().is_root() {
        let mut chown = Command::new("chown");
        let given = chown.arg("-R").arg(format!("{user}:{user}")).arg(dir);
        assert!(
            given.status().is_ok_and(|status| status.success()),
            "{user} has no user of its own"
        );
    }
}
