//! A run inside a run.

use crate::common::Place;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

#[test]
fn a_name_that_an_ancestor_holds_is_refused_at_once() {
    let place = Place::new();
    let script = format!("echo $LEASEHOLD_FENCE; {LEASEHOLD} run x -- echo never");
    let answer = place.leasehold(&["run", "x", "--", "sh", "-c", &script]);
    assert_eq!(answer.code, 64, "{answer:?}");
    let fence = answer.out.trim();
    assert!(fence.parse::<u64>().is_ok(), "{answer:?}");
    assert!(
        answer.err.contains(&format!("fence {fence}")) && answer.err.contains("--reenter"),
        "{answer:?}"
    );
}

#[test]
fn the_refusal_reaches_past_runs_of_other_names() {
    let place = Place::new();
    let script = format!("{LEASEHOLD} run y -- {LEASEHOLD} run x --shared -- echo never");
    let answer = place.leasehold(&["run", "x", "--shared", "--", "sh", "-c", &script]);
    assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
    assert!(
        answer.err.contains("x is held by a surrounding run"),
        "{answer:?}"
    );
}

#[test]
fn reenter_runs_under_the_grant_of_the_ancestor() {
    let place = Place::new();
    let inner = "echo $LEASEHOLD_NAME $LEASEHOLD_FENCE; exit 9";
    let script = format!(
        "echo x $LEASEHOLD_FENCE; {LEASEHOLD} run y -- {LEASEHOLD} run x --reenter -- sh -c '{inner}'"
    );
    let answer = place.leasehold(&["run", "x", "--", "sh", "-c", &script]);
    assert_eq!((answer.code, answer.err.as_str()), (9, ""), "{answer:?}");
    let lines: Vec<_> = answer.out.lines().collect();
    assert_eq!(lines.len(), 2, "{answer:?}");
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn reenter_without_an_ancestor_takes_the_lock() {
    let place = Place::new();
    let answer = place.leasehold(&["run", "x", "--reenter", "--", LEASEHOLD, "status", "--json"]);
    assert!(answer.out.contains("\"fence\""), "{answer:?}");
}

#[test]
fn another_place_or_another_name_is_another_lock() {
    let place = Place::new();
    let script = format!(
        "{LEASEHOLD} run X -- true && {LEASEHOLD} --url {}-b run x -- echo fine",
        place.url()
    );
    let answer = place.leasehold(&["run", "x", "--", "sh", "-c", &script]);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (0, "fine\n"),
        "{answer:?}"
    );
}

#[test]
fn a_record_of_a_lock_that_has_ended_refuses_nothing() {
    let place = Place::new();
    let held = place.leasehold(&[
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "printf %s \"$LEASEHOLD_HELD\"",
    ]);
    assert!(held.out.contains("\tx\t"), "{held:?}");
    let output = place
        .command(&["run", "x", "--", "echo", "ran"])
        .env("LEASEHOLD_HELD", held.out)
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"ran\n", "{output:?}");
}

#[test]
fn reenter_is_refused_under_a_grant_for_less() {
    let place = Place::new();
    let reenter = |more: &str| format!("{LEASEHOLD} run x {more} --reenter -- echo ran");
    let two = ["--permits", "2", "--of", "3"];
    for (outer, inner, code) in [
        (&["--shared"][..], "", 64),
        (&["--shared"], "--shared", 0),
        (&[], "--shared", 0),
        (&two, "--permits 3 --of 3", 64),
        (&two, "--permits 1 --of 3", 0),
        (&two, "", 64),
    ] {
        let script = reenter(inner);
        let args = [&["run", "x"], outer, &["--", "sh", "-c", &script]].concat();
        let answer = place.leasehold(&args);
        assert_eq!(answer.code, code, "{outer:?} {inner}: {answer:?}");
        let less = answer.err.contains("for less than is asked for");
        assert_eq!(
            (less, answer.out.is_empty()),
            (code == 64, code == 64),
            "{answer:?}"
        );
    }
}

/// A directory or a file that is named from here is passed on as a URL that means the same one.
#[test]
fn a_nested_run_finds_the_same_locks_whatever_their_path() {
    let place = Place::new();
    let scheme = if cfg!(feature = "sqlite") {
        &["file", "sqlite"][..]
    } else {
        &["file"]
    };
    for (scheme, path) in scheme
        .iter()
        .flat_map(|s| ["plain", "a%3Fb", "a%2541", "a b@c"].map(|p| (s, p)))
    {
        let url = format!("{scheme}:{scheme} {path}");
        let script = format!("cd /; {LEASEHOLD} run x -- echo never");
        let answer = place.leasehold(&["--url", &url, "run", "x", "--", "sh", "-c", &script]);
        assert_eq!(
            (answer.code, answer.out.as_str()),
            (64, ""),
            "{url}: {answer:?}"
        );
        assert!(
            answer.err.contains("held by a surrounding run"),
            "{url}: {answer:?}"
        );
    }
}
