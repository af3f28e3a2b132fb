//! Help, messages about wrong arguments, and exit codes.

use crate::common::Place;

#[test]
fn bad_usage_is_64_and_says_what_to_do() {
    let place = Place::new();
    for (args, says) in [
        (&[][..], "Usage"),
        (&["nope"], "nope"),
        (&["run", "x"], "CMD"),
        (&["run", "x", "true"], "'true'"),
        (&["run", "x", "--wait", "2", "--", "true"], "unit"),
        (&["run", "x", "--wait=-2s", "--", "true"], "negative"),
        (&["run", "x", "--wait", "-1s", "--", "true"], "negative"),
        (&["run", "x", "--lease", "-1s", "--", "true"], "negative"),
        (&["run", "x", "--busy-code", "0", "--", "true"], "1..=255"),
        (&["evict", "x", "--why", " "], "say why"),
        (
            &["evict", "x", "--why", "test", "--fence", "abc"],
            "a whole number",
        ),
        (&["--url", "file:/tmp/x", "man"], "leave out --url"),
        (
            &["run", "x", "--wait", "2s", "--no-wait", "--", "true"],
            "--no-wait",
        ),
        (&["run", "x", "--lease", "0s", "--", "true"], "lease"),
        (&["run", "x", "--lease", "1ms", "--", "true"], "20 ms"),
        (&["run", "x", "--permits", "1", "--", "true"], "--of"),
        (
            &["run", "x", "--permits", "3", "--of", "2", "--", "true"],
            "never be granted",
        ),
        (
            &[
                "run",
                "x",
                "--shared",
                "--permits",
                "1",
                "--of",
                "2",
                "--",
                "true",
            ],
            "--shared",
        ),
        (&["run", "", "--", "true"], "empty"),
        (&["run", "two\nlines", "--", "true"], "control character"),
        (&["status", ""], "empty"),
        (&["evict", "x"], "--why"),
        (&["completions", "nosuchshell"], "bash"),
    ] {
        let answer = place.leasehold(args);
        assert_eq!(answer.code, 64, "{args:?}: {answer:?}");
        assert!(
            answer.err.starts_with("leasehold: "),
            "{args:?}: {answer:?}"
        );
        assert!(
            answer.err.contains(says),
            "{args:?} says {says:?}: {answer:?}"
        );
        assert!(
            answer.err.lines().count() < 24 || args.is_empty(),
            "{answer:?}"
        );
        assert_eq!(answer.out, "");
    }
}

#[test]
fn other_failures_have_their_own_codes() {
    let place = Place::new();
    for (args, code, says) in [
        (
            &["--url", "carrier-pigeon:", "run", "x", "--", "true"][..],
            78,
            "file:",
        ),
        (&["--url", "file:/tmp?nope=1", "status"], 78, "nope"),
        (
            &["run", "x", "--", "/no/such/command"],
            127,
            "/no/such/command",
        ),
        (&["run", "x", "--", "/etc/passwd"], 126, "/etc/passwd"),
        (&["run", "x", "--", "echo hi | cat"], 127, "sh -c"),
        (
            &["--url", "memory:", "run", "x", "--", "true"],
            78,
            "one process",
        ),
        (
            &["--url-file", "/no/such/file", "status"],
            78,
            "/no/such/file",
        ),
        (&["run", "x", "--", "sh", "-c", "exit 7"], 7, ""),
        (
            &["run", "x", "--", "sh", "-c", "kill -USR1 $$"],
            128 + 10,
            "",
        ),
    ] {
        let answer = place.leasehold(args);
        assert_eq!(answer.code, code, "{args:?}: {answer:?}");
        assert!(answer.err.contains(says), "{args:?}: {answer:?}");
        assert_eq!(answer.err.is_empty(), says.is_empty(), "{answer:?}");
    }
    assert_eq!(place.status(), serde_json::json!([]), "nothing stays held");
}

#[test]
fn help_has_examples_and_the_table_of_exit_codes() {
    let place = Place::new();
    let help = place.leasehold(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    assert!(help.out.contains("leasehold run backup --"), "{}", help.out);
    for url in [
        "file:",
        "redis://",
        "redlock://",
        "postgres://",
        "mysql://",
        "sqlite:",
        "zookeeper://",
        "etcd://",
        "consul://",
    ] {
        assert!(help.out.contains(&format!("\n  {url}")), "{url}");
    }
    let run = place.leasehold(&["run", "--help"]).out;
    for code in [
        "1", "64", "69", "75", "76", "77", "78", "126", "127", "128+n",
    ] {
        assert!(run.contains(&format!("\n  {code} ")), "{code} in {run}");
    }
    let version = place.leasehold(&["--version"]);
    assert_eq!(
        version.out,
        format!("leasehold {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_man_page_and_completions_know_every_command() {
    let place = Place::new();
    let man = place.leasehold(&["man"]);
    assert_eq!((man.code, man.err.as_str()), (0, ""));
    let bash = place.leasehold(&["completions", "bash"]);
    assert_eq!((bash.code, bash.err.as_str()), (0, ""));
    for word in ["run", "status", "evict", "completions", "man"] {
        assert!(man.out.contains(word) && bash.out.contains(word), "{word}");
    }
    assert!(
        man.out.contains("no\\-wait") && man.out.contains("Exit codes"),
        "{}",
        man.out
    );
    assert!(
        man.out.contains("postgres://") && !man.out.contains("leasehold\\-run(1)"),
        "{}",
        man.out
    );
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert_eq!(place.leasehold(&["completions", shell]).code, 0, "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let mut command = place.command(&["man"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

/// A command that is installed once is used with every server.
#[test]
fn the_command_is_built_with_every_engine_by_default() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let own = read("Cargo.toml");
    assert!(own.contains("\ndefault = [\"all-engines\"]\n"), "{own}");
    let all = own.lines().find(|line| line.starts_with("all-engines = "));
    let all = all.unwrap();
    let library = read("../leasehold/Cargo.toml");
    let features = library.split("[features]").nth(1).unwrap();
    let features = features.split("\n[").next().unwrap();
    let engines = features.lines().filter_map(|line| line.split_once(" = ["));
    let engines: Vec<_> = engines
        .map(|(feature, _)| feature)
        .filter(|feature| !["default", "file", "macros", "cached", "conformance"].contains(feature))
        .collect();
    assert!(engines.len() >= 8, "{engines:?}");
    for engine in engines {
        assert!(all.contains(&format!("\"{engine}\"")), "{engine} in {all}");
    }
}
