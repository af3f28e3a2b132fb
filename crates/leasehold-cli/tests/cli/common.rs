//! The real command on a directory of its own.
#![expect(
    clippy::disallowed_methods,
    reason = "polling needs a clock and a pause; this is the one place"
)]

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Asks until there is an answer; fails with the last state after a while.
pub(crate) fn until<T, E: Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match look() {
            Ok(found) => return found,
            Err(state) if Instant::now() > end => panic!("waited for {what}; last: {state:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
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
        Answer::of(self.command(args).output().unwrap())
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
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

/// What a run of the command printed, and its exit code (as a shell counts).
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let signal = output.status.signal().map(|signal| -signal);
        Self {
            code: output.status.code().or(signal).unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command that runs; killed if the test fails before its end.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn pid(&self) -> Pid {
        let id = self.0.as_ref().unwrap().id();
        Pid::from_raw(id.try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Answer {
        let child = self.0.take().unwrap();
        Answer::of(child.wait_with_output().unwrap())
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self(Some(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat
        .ok()
        .and_then(|stat| Some(stat.rsplit_once(") ")?.1.chars().next()?));
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn wait_for_death(pid: Pid) {
    until_true("the process to end", || !is_alive(pid));
}
