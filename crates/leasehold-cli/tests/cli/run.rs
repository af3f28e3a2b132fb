//! `run` when all is well: the child's environment, waiting, and what passes through.

use std::io::Write;
use std::process::Stdio;

use crate::common::{Place, is_alive, until, wait_for_death};
use rustix::process::Signal;

#[test]
fn stdin_stdout_stderr_and_the_exit_code_pass_through() {
    let place = Place::new();
    let script = "cat; echo oops >&2; exit 3";
    let mut command = place.command(&["run", "x", "--", "sh", "-c", script]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"hello");
    assert_eq!(output.stderr, b"oops\n", "and nothing of ours");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn the_environment_has_name_fence_and_url() {
    let place = Place::new();
    let script = "echo \"$LEASEHOLD_NAME|$LEASEHOLD_FENCE|$LEASEHOLD_URL\"";
    let fence = |args: &[&str]| {
        let answer = place.leasehold(&[args, &["--", "sh", "-c", script]].concat());
        let [name, fence, url] = answer.out.trim().split('|').collect::<Vec<_>>()[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(name, "a b/ü");
        assert!(url.starts_with("file:/"), "{url}");
        fence.parse::<u64>().unwrap()
    };
    let first = fence(&["run", "a b/ü"]);
    let second = fence(&["--url", &place.url(), "run", "a b/ü"]);
    // A relative directory means the same one wherever the child goes.
    let third = fence(&["--url", "file:locks", "run", "a b/ü"]);
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn busy_is_75_or_another_code_and_says_by_whom() {
    let place = Place::new();
    let holder = place.hold("x", &[], "sleep 1000");
    for args in [&["--no-wait"][..], &["--wait", "30ms"], &["--wait", "0s"]] {
        let answer = place.leasehold(&[&["run", "x"], args, &["--", "echo", "ran"]].concat());
        assert_eq!((answer.code, answer.out.as_str()), (75, ""), "{answer:?}");
        let by = format!(
            ":{} (sh) holds it with fence ",
            holder.pid().as_raw_nonzero()
        );
        assert!(
            answer.err.starts_with("leasehold: x is busy: ") && answer.err.contains(&by),
            "{answer:?}"
        );
    }
    let answer = place.leasehold(&["run", "x", "--no-wait", "--busy-code", "9", "--", "true"]);
    assert_eq!(answer.code, 9, "{answer:?}");
    let other = place.leasehold(&["run", "X", "--no-wait", "--", "true"]);
    assert_eq!(other.code, 0, "another name: {other:?}");
    drop(holder);
}

#[test]
fn waiters_get_the_lock_in_order() {
    let place = Place::new();
    let go = place.path("go");
    let holder = place.hold("x", &[], "until [ -e go ]; do sleep 0.01; done");
    let mut waiters = Vec::new();
    for n in 1..=3 {
        waiters.push(place.start(&[
            "run",
            "x",
            "--wait",
            "1m",
            "--",
            "sh",
            "-c",
            &format!("echo {n} >> order"),
        ]));
        place.wait_for_counts("x", (1, n));
    }
    std::fs::write(go, "").unwrap();
    assert_eq!(holder.end().code, 0);
    for waiter in waiters {
        assert_eq!(waiter.end().code, 0);
    }
    assert_eq!(
        std::fs::read_to_string(place.path("order")).unwrap(),
        "1\n2\n3\n"
    );
}

#[test]
fn shared_holders_exclude_exclusive_ones() {
    let place = Place::new();
    let one = place.hold("x", &["--shared"], "sleep 1000");
    let two = place.hold("x", &["--shared", "--no-wait"], "sleep 1000");
    let alone = place.leasehold(&["run", "x", "--no-wait", "--", "true"]);
    assert_eq!(alone.code, 75, "{alone:?}");
    drop((one, two));
    let alone = place.hold("y", &[], "sleep 1000");
    let shared = place.leasehold(&["run", "y", "--shared", "--no-wait", "--", "true"]);
    assert_eq!(shared.code, 75, "{shared:?}");
    drop(alone);
}

#[test]
fn permits_are_counted() {
    let place = Place::new();
    let ask = |k: &str, of: &str| {
        let answer = place.leasehold(&[
            "run",
            "gpu",
            "--no-wait",
            "--permits",
            k,
            "--of",
            of,
            "--",
            "true",
        ]);
        answer.code
    };
    let holder = place.hold("gpu", &["--permits", "2", "--of", "3"], "sleep 1000");
    assert_eq!(ask("1", "3"), 0);
    assert_eq!(ask("2", "3"), 75);
    assert_eq!(
        ask("1", "4"),
        64,
        "another number of permits for a name in use"
    );
    assert_eq!(
        place
            .leasehold(&["run", "gpu", "--no-wait", "--", "true"])
            .code,
        64
    );
    drop(holder);
}

#[test]
fn a_signal_to_the_runner_reaches_the_child_and_frees_the_lock() {
    let place = Place::new();
    let signals = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
    for (signal, code) in signals.into_iter().zip([129, 130, 131, 143]) {
        // No shell: one that is about to start a command may miss a signal.
        let holder = place.start(&["run", "x", "--lease", "1h", "--", "sleep", "1000"]);
        place.wait_for_counts("x", (1, 0));
        holder.signal(signal);
        let answer = holder.end();
        assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{answer:?}");
        let next = place.leasehold(&["run", "x", "--no-wait", "--", "true"]);
        assert_eq!(next.code, 0, "{signal:?}: {next:?}");
    }
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let place = Place::new();
    let holder = place.hold("x", &[], "sleep 1000 & echo $! > pid; wait");
    let grandchild = place.pid("pid");
    holder.signal(Signal::TERM);
    wait_for_death(grandchild);
    assert_eq!(holder.end().code, 143);
}

#[test]
fn a_child_that_handles_a_signal_goes_on() {
    let place = Place::new();
    let script =
        "trap 'echo usr1' USR1; trap 'exit 5' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let holder = place.hold("x", &[], script);
    let _ = place.pid("pid");
    holder.signal(Signal::USR1);
    until("the handler", || match holder.printed() {
        text if text == "usr1\n" => Ok(()),
        text => Err(text),
    });
    assert_eq!(place.counts("x"), (1, 0));
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code, 5);
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = Place::new();
    let runner = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "trap '' HUP; exec {runner} run x -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'"
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("LEASEHOLD_URL", place.url())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"alive\n", "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_waiter_that_is_told_to_end_leaves_no_claim() {
    let place = Place::new();
    let holder = place.hold("x", &["--lease", "1h"], "sleep 1000");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiter = place.start(&["run", "x", "--lease", "1h", "--", "touch", "ran"]);
        place.wait_for_counts("x", (1, 1));
        waiter.signal(signal);
        let answer = waiter.end();
        assert_eq!(answer.code, code, "{answer:?}");
        assert_eq!(place.counts("x"), (1, 0), "{signal:?}");
    }
    assert!(!place.path("ran").exists());
    drop(holder);
}

#[test]
fn verbose_says_what_happens() {
    let place = Place::new();
    let answer = place.leasehold(&["-v", "run", "x", "--", "true"]);
    assert_eq!(answer.code, 0);
    assert!(
        answer.err.contains("asking for x") && answer.err.contains("with fence"),
        "{answer:?}"
    );
}

#[test]
fn leftover_processes_of_the_command_do_not_keep_the_lock() {
    let place = Place::new();
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > pid";
    let answer = place.leasehold(&["run", "x", "--lease", "1h", "--", "sh", "-c", script]);
    assert_eq!(answer.code, 0);
    assert_eq!(
        place
            .leasehold(&["run", "x", "--no-wait", "--", "true"])
            .code,
        0
    );
    let left = place.pid("pid");
    assert!(is_alive(left), "it runs on");
    rustix::process::kill_process(left, Signal::KILL).unwrap();
    wait_for_death(left);
}
