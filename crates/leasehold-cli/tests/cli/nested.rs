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
