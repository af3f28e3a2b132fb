//! The layers: reads the source and keeps them apart.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file below a folder, with its text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        for path in entries.map(|entry| entry.expect("readable").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("readable");
                files.push((path, text));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has sources");
    files
}

/// Refuses a word in the code (not in comments) of a folder, except in the files named.
fn never(folder: &str, word: &str, except: &[&str], why: &str) {
    for (path, text) in sources(folder) {
        if except.iter().any(|except| path.ends_with(except)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            assert!(
                !code.contains(word),
                "{path:?}:{}: `{word}`: {why}",
                number + 1
            );
        }
    }
}

#[test]
fn a_kind_never_names_an_engine() {
    for folder in ["kinds", "turns", "session", "blocking"] {
        never(
            &format!("crates/leasehold/src/{folder}"),
            "crate::engines",
            &[],
            "layers above engines see the traits only",
        );
    }
    never(
        "crates/leasehold/src/store",
        "crate::engines",
        &["store/mod.rs"],
        "only the list of stores names engines",
    );
}

#[test]
fn an_engine_names_no_layer_above_and_no_other_engine() {
    let engines = root().join("crates/leasehold/src/engines");
    let folders = std::fs::read_dir(&engines)
        .expect("readable")
        .map(|entry| entry.expect("readable").path());
    let engines: Vec<_> = folders.filter(|path| path.is_dir()).collect();
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    for engine in &engines {
        let folder = format!("crates/leasehold/src/engines/{}", name(engine));
        for above in [
            "crate::kinds",
            "crate::turns",
            "crate::guard",
            "crate::client",
            "crate::blocking",
        ] {
            never(
                &folder,
                above,
                &[],
                "an engine knows nothing of what is above it",
            );
        }
        for other in engines.iter().filter(|other| *other != engine) {
            // The part that servers which order nodes share.
            if name(other) != "ordered" {
                let word = format!("engines::{}", name(other));
                never(&folder, &word, &[], "an engine never names another");
            }
        }
    }
}

#[test]
fn one_module_reads_clocks() {
    for word in ["SystemTime::now", "Instant::now", "clock_gettime"] {
        never(
            "crates/leasehold/src",
            word,
            &["clock.rs"],
            "clock.rs alone reads clocks",
        );
    }
}

#[test]
fn what_the_compiler_cannot_check_is_in_one_small_module() {
    let except = ["leasehold-cli/src/sys.rs"];
    for word in [concat!("unsafe", " {"), concat!("unsafe", "_code")] {
        for folder in ["crates", "examples"] {
            let why = "unsafe code needs its own module and reason";
            never(folder, word, &except, why);
        }
    }
}

#[test]
fn only_the_session_and_event_loops_start_tasks() {
    for folder in ["kinds", "turns", "engine", "blocking", "line"] {
        never(
            &format!("crates/leasehold/src/{folder}"),
            "tokio::spawn",
            &[],
            "only the session starts tasks",
        );
    }
}

#[test]
fn nothing_that_ships_depends_on_the_testkit() {
    for package in ["leasehold", "leasehold-cli", "leasehold-macros"] {
        let manifest = root().join("crates").join(package).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect("readable");
        let shipped = manifest.split("[dev-dependencies]").next().unwrap_or("");
        assert!(
            !shipped.contains("leasehold-testkit"),
            "{package} ships the testkit"
        );
    }
}

#[test]
fn files_are_one_idea_long() {
    for package in [
        "crates/leasehold",
        "crates/leasehold-cli",
        "crates/leasehold-lab",
        "crates/leasehold-macros",
        "crates/leasehold-testkit",
        "examples/shop",
    ] {
        for (path, text) in sources(&format!("{package}/src")) {
            let tests = ["#[cfg(test)]", "#[cfg(any(test, fuzzing))]"];
            let tests = tests.iter().filter_map(|tests| text.find(tests)).min();
            let lines = text[..tests.unwrap_or(text.len())].lines().count();
            assert!(
                lines <= 400,
                "{path:?} has {lines} lines without its tests: is it one idea?"
            );
        }
    }
}
