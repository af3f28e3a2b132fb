//! The real command on a directory of its own.
#![expect(
    clippy::disallowed_methods,
    reason = "how long something took is read off a clock"
)]

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::poll;
use rustix::process::{Pid, Signal, kill_process};

/// Asks until there is an answer; fails with the last state after a while.
pub(crate) fn until<T, E: Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    poll::until(what, || look().map_err(|state| format!("{state:?}")))
}

/// Waits until something is true.
pub(crate) fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || if look() { Ok(()) } else { Err("not yet") });
}

/// How long something took.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    (act(), begin.elapsed())
}

/// A program as a shell starts it in the foreground. Whoever runs the tests in the background or under `nohup` has
/// signals ignored, and an ignored signal stays ignored.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    let _ = command.args(["--default-signal", program]);
    command
}

/// A directory with locks and whatever the commands write.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.0.path().join("locks").display())
    }

    /// The command with these arguments, run where its files are.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = with_default_signals(env!("CARGO_BIN_EXE_leasehold"));
        let _ = command
            .args(args)
            .env("LEASEHOLD_URL", self.url())
            .env_remove("LEASEHOLD_HELD")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn leasehold(&self, args: &[&str]) -> Answer {
        self.start(args).end()
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// Starts a run of a shell script and waits until the script has begun.
    pub(crate) fn hold(&self, name: &str, more: &[&str], script: &str) -> Running {
        let begun = self.path(&format!("begun-{}", std::process::id()));
        let _ = std::fs::remove_file(&begun);
        let script = format!(": > {}; {script}", begun.display());
        let args = [&["run", name], more, &["--", "sh", "-c", &script]].concat();
        let running = self.start(&args);
        until_true("the script to begin", || begun.exists());
        running
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// A line that a script wrote, once it has.
    pub(crate) fn line(&self, file: &str) -> String {
        until(file, || {
            let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
            text.strip_suffix('\n').map(str::to_owned).ok_or(text)
        })
    }

    pub(crate) fn pid(&self, file: &str) -> Pid {
        Pid::from_raw(self.line(file).trim().parse().unwrap()).unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let answer = self.leasehold(&["status", "--json"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        serde_json::from_str(&answer.out).unwrap()
    }

    /// How many hold and how many wait for a name.
    pub(crate) fn counts(&self, name: &str) -> (usize, usize) {
        let lines = self.status();
        let line = lines
            .as_array()
            .unwrap()
            .iter()
            .find(|line| line["name"] == name);
        let count = |what: &str| line.map_or(0, |line| line[what].as_array().unwrap().len());
        (count("holders"), count("waiters"))
    }

    pub(crate) fn wait_for_counts(&self, name: &str, counts: (usize, usize)) {
        until("holders and waiters", || {
            let found = self.counts(name);
            if found == counts { Ok(()) } else { Err(found) }
        });
    }
}

/// What a run of the command printed, and its exit code; minus the signal that ended it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command that runs; killed if the test fails before its end. It writes to files: a process it left behind could
/// keep a pipe open.
pub(crate) struct Running {
    child: Child,
    out: File,
    err: File,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let command = command.stdout(out.try_clone().unwrap());
        let child = command.stderr(err.try_clone().unwrap()).spawn().unwrap();
        Self { child, out, err }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        text(&self.out)
    }

    /// What it has said on stderr so far.
    #[cfg(feature = "redis")]
    pub(crate) fn said(&self) -> String {
        text(&self.err)
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Answer {
        let status = until("the command to end", || {
            self.child.try_wait().unwrap().ok_or("it runs")
        });
        let signal = status.signal().map(|signal| -signal);
        Answer {
            code: status.code().or(signal).unwrap(),
            out: text(&self.out),
            err: text(&self.err),
        }
    }
}

/// All of a file, without moving where its writer is.
fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat
        .ok()
        .and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn wait_for_death(pid: Pid) {
    until_true("the process to end", || !is_alive(pid));
}
