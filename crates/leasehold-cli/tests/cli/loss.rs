//! The child and the lock end together, whatever ends first.

use crate::common::{
    Place, Running, is_alive, made_after, timed, until, until_true, wait_for_death,
    with_default_signals,
};
use leasehold_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// A child with a child of its own, whose ids are in `child` and `grandchild`.
const FAMILY: &str = "sleep 1000 & echo $! > grandchild; echo $$ > child; wait";

#[test]
fn evict_stops_the_group_with_sigterm_and_exits_76() {
    let place = Place::new();
    let script =
        "trap 'echo termed > termed; exit 0' TERM; sleep 1000 & echo $! > grandchild; wait";
    let holder = place.hold("x", &["--lease", "1h"], script);
    let grandchild = place.pid("grandchild");
    let evicted = place.leasehold(&["evict", "x", "--why", "the job hangs"]);
    assert_eq!(
        (evicted.code, evicted.out.as_str()),
        (0, "1 holder of x lost it\n"),
        "{evicted:?}"
    );
    let answer = holder.end();
    assert_eq!(answer.code, 76, "{answer:?}");
    assert!(
        answer.err.starts_with("leasehold: lost: ") && answer.err.contains("the job hangs"),
        "{answer:?}"
    );
    assert_eq!(place.line("termed"), "termed");
    assert!(
        !is_alive(grandchild),
        "the whole group is gone when the runner is"
    );
}

#[test]
fn a_group_that_ignores_sigterm_is_killed_after_a_third_of_the_lease() {
    let place = Place::urgent();
    let script =
        "trap '' TERM; sleep 1000 & echo $! > grandchild; echo $$ > child; while :; do wait; done";
    let holder = place.hold("x", &["--lease", "6s"], script);
    let (child, grandchild) = (place.pid("child"), place.pid("grandchild"));
    let ((), took) = timed(|| {
        assert_eq!(place.leasehold(&["evict", "x", "--why", "test"]).code, 0);
        assert_eq!(holder.end().code, 76);
    });
    wait_for_death(child);
    wait_for_death(grandchild);
    // At two thirds the lease may end, and the watchdog would have done it.
    let (third, two) = (Duration::from_secs(2), Duration::from_millis(3_900));
    assert!(third <= took && took < two, "{took:?}");
}

#[test]
fn an_eviction_without_a_holder_says_so() {
    let place = Place::new();
    let answer = place.leasehold(&["evict", "x", "--why", "test"]);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (0, "no process holds x\n"),
        "{answer:?}"
    );
    let holder = place.hold("x", &[], "sleep 1000");
    let answer = place.leasehold(&["evict", "x", "--why", "test", "--fence", "1"]);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (0, "no process holds x with fence 1\n"),
        "{answer:?}"
    );
    assert_eq!(place.counts("x"), (1, 0));
    let fence = place.status()[0]["holders"][0]["fence"].to_string();
    assert_eq!(
        place
            .leasehold(&["evict", "x", "--why", "test", "--fence", &fence])
            .code,
        0
    );
    assert_eq!(holder.end().code, 76);
}

#[test]
fn a_killed_runner_takes_the_whole_group_with_it() {
    let place = Place::new();
    let holder = place.hold("x", &["--lease", "1h"], FAMILY);
    let (child, grandchild) = (place.pid("child"), place.pid("grandchild"));
    holder.signal(Signal::KILL);
    assert_eq!(holder.end().code, -9);
    wait_for_death(child);
    wait_for_death(grandchild);
}

#[test]
fn the_lock_of_a_killed_runner_passes_on_only_after_its_group() {
    let place = Place::new();
    let holder = place.hold("x", &["--lease", "1h"], FAMILY);
    let (child, grandchild) = (place.pid("child"), place.pid("grandchild"));
    let script = format!(
        "kill -0 {} 2> /dev/null && echo child; grep -qs '^State:.[^ZX]' /proc/{}/status && echo grandchild; echo held",
        child.as_raw_nonzero(),
        grandchild.as_raw_nonzero(),
    );
    let next = place.start(&["run", "x", "--", "sh", "-c", &script]);
    place.wait_for_counts("x", (1, 1));
    holder.signal(Signal::KILL);
    let answer = next.end();
    assert!(
        answer.out.ends_with("held\n") && !answer.out.contains("grandchild"),
        "{answer:?}"
    );
}

/// The child cannot still run then: the session that holds the lock ends with its last process, which is the watchdog,
/// and that ends after it has seen no process of the group that could take another step.
#[test]
fn the_lock_of_a_killed_runner_passes_on_within_100_ms() {
    for round in 0..9 {
        let place = Place::urgent();
        let holder = place.hold("x", &["--lease", "1h"], FAMILY);
        let family = [place.pid("child"), place.pid("grandchild")];
        let next = place.start(&["run", "x", "--", "sh", "-c", "echo held > held; sleep 1000"]);
        place.wait_for_counts("x", (1, 1));
        let took = made_after(&place.path("held"), || holder.signal(Signal::KILL));
        assert!(!family.into_iter().any(is_alive), "round {round}");
        assert!(
            took < Duration::from_millis(100),
            "round {round}: {took:?} after the kill"
        );
        drop(next);
    }
}

/// As `sudo` does it: the runner is not root, and its command becomes root.
#[test]
fn a_command_that_changed_its_user_and_cannot_be_stopped_is_named() {
    if skip::asked_for("two-users") {
        return;
    }
    let place = Place::new();
    let (runner, setuid) = (place.path("leasehold"), place.path("become-root"));
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .expect("setpriv (util-linux) is not there: run scripts/servers, or skip with LEASEHOLD_SKIP=two-users");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    for (from, to, bits) in [
        (env!("CARGO_BIN_EXE_leasehold"), &runner, 0o755),
        (setpriv, &setuid, 0o4755),
    ] {
        let _ = std::fs::copy(from, to).unwrap();
        std::fs::set_permissions(to, mode(bits)).unwrap();
    }
    std::fs::set_permissions(place.path(""), mode(0o777)).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let as_nobody = |args: &[&str]| {
        let mut command = with_default_signals("setpriv");
        let command = command.args(user).arg(&runner).args(args);
        let command = command.env(
            "LEASEHOLD_URL",
            format!("file:{}", place.path("theirs/locks").display()),
        );
        Running::start(command.current_dir(place.path("")))
    };
    std::fs::create_dir(place.path("theirs")).unwrap();
    std::os::unix::fs::chown(place.path("theirs"), Some(65_534), Some(65_534)).unwrap();
    let script = "echo $$ > child; exec sleep 1000";
    let root = [
        "./become-root",
        "--reuid=0",
        "--regid=0",
        "--clear-groups",
        "sh",
        "-c",
        script,
    ];
    let holder = as_nobody(&[&["run", "x", "--lease", "1500ms", "--"], &root[..]].concat());
    let child = place.pid("child");
    let evicted = as_nobody(&["evict", "x", "--why", "test"]).end();
    assert_eq!(evicted.code, 0, "{evicted:?}");
    let answer = holder.end();
    assert_eq!(answer.code, 76, "{answer:?}");
    let named = format!("process {} of user 0 still runs", child.as_raw_nonzero());
    assert!(answer.err.contains(&named), "{answer:?}");
    assert!(is_alive(child), "or there was nothing to say");
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn a_stopped_runner_loses_its_group_with_its_lease() {
    let place = Place::urgent();
    let holder = place.hold("x", &["--lease", "300ms"], FAMILY);
    let (child, grandchild) = (place.pid("child"), place.pid("grandchild"));
    holder.signal(Signal::STOP);
    wait_for_death(child);
    wait_for_death(grandchild);
    holder.signal(Signal::CONT);
    let answer = holder.end();
    assert_eq!(answer.code, 76, "{answer:?}");
}

#[test]
fn a_short_lease_is_renewed_while_the_command_runs() {
    let place = Place::urgent();
    let answer = place.leasehold(&["run", "x", "--lease", "400ms", "--", "sleep", "1.4"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{answer:?}");
}

#[test]
fn a_child_is_stopped_before_a_lease_that_cannot_be_renewed_ends() {
    let place = Place::urgent();
    // Waits: a shell that starts a command first hears the signal after it.
    let script = "trap 'echo termed > termed; exit 0' TERM; sleep 1000 & echo $$ > child; wait";
    let holder = place.hold("x", &["--lease", "3s"], script);
    let child = place.pid("child");
    let lines = std::fs::read_dir(place.path("locks/lines")).unwrap();
    let line = lines.map(|entry| entry.unwrap().path()).next().unwrap();
    // A program that has the file's lock keeps every renewal out.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(line)
        .unwrap();
    file.lock().unwrap();
    let ((), took) = timed(|| wait_for_death(child));
    let answer = holder.end();
    assert_eq!(answer.code, 76, "{answer:?}");
    assert_eq!(place.line("termed"), "termed");
    // It was renewed for the last time before the file was locked.
    assert!(took < Duration::from_secs(3), "{took:?}");
    file.unlock().unwrap();
}

#[test]
fn a_command_survives_its_watchdog() {
    let place = Place::new();
    let script = "until [ -e go ]; do sleep 0.01; done; echo fine";
    let holder = place.hold("x", &[], script);
    let watchdog = until("the watchdog", || watchdog_of(holder.pid()));
    // A whole control group may be told to end.
    until("blocked signals", || match blocked(watchdog) {
        set if set & (1 << (Signal::TERM.as_raw() - 1)) != 0 => Ok(()),
        set => Err(format!("{set:x}")),
    });
    kill_process(watchdog, Signal::KILL).unwrap();
    wait_for_death(watchdog);
    std::fs::write(place.path("go"), "").unwrap();
    let answer = holder.end();
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (0, "fine\n"),
        "{answer:?}"
    );
}

#[test]
fn a_child_dies_with_its_runner_even_without_a_watchdog() {
    let place = Place::new();
    let holder = place.hold("x", &[], "echo $$ > child; while :; do sleep 0.01; done");
    let child = place.pid("child");
    let watchdog = until("the watchdog", || watchdog_of(holder.pid()));
    kill_process(watchdog, Signal::KILL).unwrap();
    wait_for_death(watchdog);
    assert!(is_alive(child));
    holder.signal(Signal::KILL);
    wait_for_death(child);
}

#[test]
fn the_watchdog_keeps_nothing_open_that_the_caller_gave_us() {
    let place = Place::new();
    let runner = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("exec 7> given; exec {runner} run x -- sh -c ': > begun; sleep 1000'");
    let mut command = std::process::Command::new("sh");
    let command = command.args(["-c", &script]).current_dir(place.path(""));
    let holder = Running::start(command.env("LEASEHOLD_URL", place.url()));
    until_true("the child", || place.path("begun").exists());
    let watchdog = until("the watchdog", || watchdog_of(holder.pid()));
    let files = |pid: Pid| -> Vec<_> {
        let fds = format!("/proc/{}/fd", pid.as_raw_nonzero());
        let fds = std::fs::read_dir(fds)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        fds.filter_map(|fd| std::fs::read_link(fd).ok()).collect()
    };
    let output =
        std::fs::read_link(format!("/proc/{}/fd/1", holder.pid().as_raw_nonzero())).unwrap();
    let given = [place.path("given").canonicalize().unwrap(), output];
    assert!(given.iter().all(|file| files(holder.pid()).contains(file)));
    until("closed files", || {
        let open = files(watchdog);
        if given.iter().any(|file| open.contains(file)) {
            Err(open)
        } else {
            Ok(())
        }
    });
    assert!(
        files(watchdog)
            .iter()
            .any(|file| file.to_string_lossy().contains("sessions/")),
        "the session stays open, so that the lock does"
    );
}

/// The set of signals that a process does not hear.
fn blocked(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:\t"));
    u64::from_str_radix(set.unwrap(), 16).unwrap()
}

fn watchdog_of(runner: Pid) -> Result<Pid, String> {
    let runner = runner.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{runner}/task/{runner}/children"));
    let children = children.map_err(|error| error.to_string())?;
    let found = children.split_whitespace().find(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "leasehold-watch\n")
    });
    let pid = found.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    pid.ok_or(format!("children: {children}"))
}
