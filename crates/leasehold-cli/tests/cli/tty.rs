//! On a terminal: its foreground group, ^C and ^Z. A real shell with job control is at the other side.

use crate::common::{Place, with_default_signals};

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Waits for the first text of each step, then types the second.
fn talk(place: &Place, steps: &[(&str, &str)]) {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/terminal.py");
    let output = with_default_signals("python3")
        .arg(driver)
        .args(steps.iter().flat_map(|(wait, types)| [wait, types]))
        .env("LEASEHOLD_URL", place.url())
        .env("LH", LEASEHOLD)
        .current_dir(place.path(""))
        .output()
        .expect("these tests drive a terminal with python3");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_child_reads_the_terminal_and_gives_it_back() {
    let place = Place::new();
    let child = "echo as\"\"k; read line; echo got-$line; exit 4";
    // A script has no job control: it cannot take the terminal back by itself.
    let script = "$LH run x -- sh -c \"$CHILD\"; echo code-$?; read line; echo then-$line";
    talk(
        &place,
        &[
            ("ready> ", &format!("export CHILD='{child}'\\n")),
            ("ready> ", &format!("sh -c '{script}'\\n")),
            ("ask", "hello\\n"),
            ("got-hello", ""),
            ("code-4", "there\\n"),
            ("then-there", "exit 0\\n"),
        ],
    );
}

#[test]
fn interrupt_reaches_the_child_alone() {
    let place = Place::new();
    talk(
        &place,
        &[
            (
                "ready> ",
                "$LH run x -- sh -c 'echo run''ning; read line'\\n",
            ),
            ("running", "\\x03"),
            ("ready> ", "echo code-$?\\n"),
            ("code-130", "$LH run x --no-wait -- echo fr''ee\\n"),
            ("free", "exit 0\\n"),
        ],
    );
}

#[test]
fn suspend_stops_the_job_and_the_shell_goes_on_with_it() {
    let place = Place::new();
    let child = "echo $$ > pid; echo run\"\"ning; read line; echo got-$line";
    talk(
        &place,
        &[
            (
                "ready> ",
                &format!("$LH run x --lease 1h -- sh -c '{child}'\\n"),
            ),
            ("running", "\\x1a"),
            (
                "Stopped",
                "echo state-$(cut -d' ' -f3 /proc/$(cat pid)/stat)\\n",
            ),
            ("state-T", "$LH run x --no-wait -- true; echo code-$?\\n"),
            ("code-75", "fg\\n"),
            ("LH run", "hello\\n"),
            ("got-hello", "echo code-$?\\n"),
            ("code-0", "exit 0\\n"),
        ],
    );
}

#[test]
fn a_suspended_job_can_go_on_in_the_background() {
    let place = Place::new();
    talk(
        &place,
        &[
            (
                "ready> ",
                // Not a loop of commands: a shell that is just starting one may not stop.
                "mkfifo go; $LH run x --lease 1h -- sh -c 'echo $$ > pid; echo run''ning; read line < go; echo do''ne'\\n",
            ),
            ("running", "\\x1a"),
            (
                "Stopped",
                "echo state-$(cut -d' ' -f3 /proc/$(cat pid)/stat)\\n",
            ),
            ("state-T", "bg; echo > go\\n"),
            ("done", "wait; echo code-$?\\n"),
            ("code-0", "exit 0\\n"),
        ],
    );
}

#[test]
fn a_job_in_the_background_does_not_take_the_terminal() {
    let place = Place::new();
    talk(
        &place,
        &[
            (
                "ready> ",
                "$LH run x -- sh -c 'echo run''ning; sleep 1000' &\\n",
            ),
            ("running", "read line; echo got-$line\\n"),
            ("read", "hello\\n"),
            ("got-hello", "kill %1; wait; exit 0\\n"),
        ],
    );
}

#[test]
fn a_job_in_the_background_that_reads_can_be_brought_to_the_front() {
    let place = Place::new();
    talk(
        &place,
        &[
            (
                "ready> ",
                "$LH run x --lease 1h -- sh -c 'read line; echo got-$line' &\\n",
            ),
            (
                "ready> ",
                "until jobs | grep -q Sto''pped; do sleep 0.01; done; fg\\n",
            ),
            ("LH run", "hello\\n"),
            ("got-hello", "exit 0\\n"),
        ],
    );
}

#[test]
fn a_pager_behind_us_keeps_the_terminal() {
    let place = Place::new();
    let pager = "read first; read line < /dev/tty; echo got-$line; : > go";
    let child = "echo first; until [ -e go ]; do sleep 0.01; done";
    talk(
        &place,
        &[
            (
                "ready> ",
                &format!("$LH run x -- sh -c '{child}' | sh -c '{pager}'; echo fin''ished\\n"),
            ),
            ("/dev/tty", "hello\\n"),
            ("got-hello", ""),
            ("finished", "exit 0\\n"),
        ],
    );
}

#[test]
fn a_child_in_a_pipeline_gets_the_terminal_when_it_asks() {
    let place = Place::new();
    let child = "echo as''k > /dev/tty; read line < /dev/tty; echo got-$line";
    talk(
        &place,
        &[
            (
                "ready> ",
                &format!(
                    "$LH run x -- sh -c \"{}\" < /dev/null | cat\\n",
                    child.replace('$', "\\\\$")
                ),
            ),
            ("ask", "hello\\n"),
            ("got-hello", "exit 0\\n"),
        ],
    );
}

#[test]
fn a_command_that_cannot_be_run_gives_the_terminal_back() {
    let place = Place::new();
    let script = "$LH run x -- /no/such/command; read line; echo got-$line";
    talk(
        &place,
        &[
            ("ready> ", &format!("sh -c '{script}'\\n")),
            ("No such file", "hello\\n"),
            ("got-hello", "exit 0\\n"),
        ],
    );
}
