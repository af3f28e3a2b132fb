//! The real command on a directory of its own.
#![expect(
    clippy::disallowed_methods,
    reason = "how long something took is read off a clock"
)]

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

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

/// How long after something was done a file was made; to the tick of the file system's clock.
pub(crate) fn made_after(path: &Path, act: impl FnOnce()) -> Duration {
    let begin = SystemTime::now();
    act();
    until_true("the file", || path.exists());
    let made = std::fs::metadata(path).unwrap().modified().unwrap();
    made.duration_since(begin).unwrap_or_default()
}

/// A program as a shell starts it in the foreground. A shell that runs the tests in the background, or `nohup`, has
/// signals ignored, and an ignored signal stays ignored.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    let _ = command.args(["--default-signal", program]);
    command
}

/// A directory with locks and what the commands write.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    /// The program that starts the command.
    starter: &'static [&'static str],
}

/// Before all other programs of the machine.
const URGENT: &[&str] = &["chrt", "--fifo", "1"];

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            starter: &[],
        }
    }

    /// For tests of what happens within a lease, and of how long it takes: other programs must not take the time of these
    /// processes. Without the right to that the machine has to be quiet.
    pub(crate) fn urgent() -> Self {
        let tried = Command::new(URGENT[0])
            .args(&URGENT[1..])
            .arg("true")
            .output();
        let allowed = tried.is_ok_and(|tried| tried.status.success());
        Self {
            starter: if allowed { URGENT } else { &[] },
            ..Self::new()
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.dir.path().join("locks").display())
    }

    /// The command with these arguments, run where its files are.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let leasehold = env!("CARGO_BIN_EXE_leasehold");
        let words = [self.starter, &[leasehold], args].concat();
        let mut command = with_default_signals(words[0]);
        let _ = command
            .args(&words[1..])
            .env("LEASEHOLD_URL", self.url())
            .env_remove("LEASEHOLD_HELD")
            .current_dir(self.dir.path())
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
        self.dir.path().join(file)
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

/// The output of a run of the command, and its exit code; minus the signal that ended it.
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

    /// The text on stdout so far.
    pub(crate) fn printed(&self) -> String {
        text(&self.out)
    }

    /// The text on stderr so far.
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
