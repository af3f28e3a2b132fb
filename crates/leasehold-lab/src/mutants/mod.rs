//! Planted bugs: each is one change to our own source, made in a copy; the scenario named with it must catch it.
//!
//! The copy is built once, with every bug in it and each behind a switch.

mod list;
mod plant;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testkit::servers::redis::Redis;

use crate::Outcome;

pub use self::list::MUTANTS;

/// One planted bug.
#[derive(Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The file below `crates/leasehold/src`.
    pub file: &'static str,
    /// What stands there, once.
    pub before: &'static str,
    /// What stands there instead. In Rust `PLANTED` is whether this bug is on.
    pub after: &'static str,
    /// What must catch it: arguments of `leasehold-lab`.
    pub scenario: &'static str,
}

/// Builds a copy of the source below `into` and runs the scenario of each bug; prints caught or missed. Whether all were
/// caught.
///
/// # Errors
/// If a copy cannot be made or built, or a scenario fails without any bug.
pub fn run(source: &Path, into: &Path, only: Option<&str>) -> Outcome<bool> {
    std::fs::create_dir_all(into)?;
    let clock = leasehold::engine::Clock::boot();
    let start = clock.now();
    let copy = into.join("source");
    copy_source(source, &copy)?;
    plant::all(&copy.join("crates/leasehold/src"))?;
    let program = build(&copy, into)?;
    let meant = |mutant: &&Mutant| only.is_none_or(|only| mutant.name.contains(only));
    clean(&program, MUTANTS.iter().filter(meant), into)?;
    println!("| planted bug | where | scenario | broken promise | |\n|---|---|---|---|---|");
    let (mut caught, mut count) = (0, 0);
    for mutant in MUTANTS.iter().filter(meant) {
        let found = scenario(&program, mutant.scenario, mutant.name, into)?;
        let word = if found.is_some() { "caught" } else { "MISSED" };
        println!(
            "| {} | {} | {} | {} | {word} |",
            mutant.name,
            mutant.file,
            mutant.scenario,
            found.as_deref().unwrap_or("none")
        );
        caught += u32::from(found.is_some());
        count += 1;
    }
    let took = (clock.now() - start) / 1_000_000;
    println!("\n{caught} of {count} caught, in {took} seconds");
    Ok(caught == count)
}

/// Without a bug no scenario may find one.
fn clean<'a>(
    program: &Path,
    mutants: impl Iterator<Item = &'a Mutant>,
    into: &Path,
) -> Outcome<()> {
    let scenarios: BTreeSet<_> = mutants.map(|mutant| mutant.scenario).collect();
    for text in scenarios {
        if let Some(found) = scenario(program, text, "", into)? {
            return Err(format!("{text} fails without a bug: {found}").into());
        }
    }
    Ok(())
}

fn copy_source(source: &Path, copy: &Path) -> Outcome<()> {
    if copy.exists() {
        std::fs::remove_dir_all(copy)?;
    }
    std::fs::create_dir_all(copy)?;
    let parts =
        ["crates", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"].map(|part| source.join(part));
    let status = Command::new("cp")
        .args(["-r", "-t"])
        .arg(copy)
        .args(parts)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the source cannot be copied".into())
    }
}

fn build(copy: &Path, into: &Path) -> Outcome<PathBuf> {
    let target = into.join("target");
    let status = Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "-p",
            "leasehold-lab",
            "--bin",
            "leasehold-lab",
            "--config",
            "profile.dev.package.leasehold-lab.opt-level=0",
        ])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(copy)
        .status()?;
    if !status.success() {
        return Err("the copy does not build".into());
    }
    Ok(target.join("debug/leasehold-lab"))
}

/// How long a scenario may take, in microseconds.
const PATIENCE: u64 = 180_000_000;

/// What the scenario found broken, if anything.
fn scenario(program: &Path, text: &str, planted: &str, into: &Path) -> Outcome<Option<String>> {
    let redis = text.contains("{redis}").then(Redis::start);
    let url = redis.as_ref().map(Redis::url).unwrap_or_default();
    let output = into.join("output");
    let said = std::fs::File::create(&output)?;
    let mut command = Command::new(program);
    let _ = command
        .args(text.replace("{redis}", &url).split(' '))
        .current_dir(into)
        .env(plant::SWITCH, planted)
        .stdout(said.try_clone()?)
        .stderr(said);
    let mut child = command.spawn()?;
    let clock = leasehold::engine::Clock::boot();
    let end = clock.now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            let text = std::fs::read_to_string(&output)?;
            return Ok((!status.success()).then(|| promises(&text)));
        }
        if clock.now() > end {
            child.kill()?;
            let _ = child.wait()?;
            return Ok(Some("progress: it does not end".to_owned()));
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
}

/// The promises that a scenario names, or the last thing it said.
fn promises(output: &str) -> String {
    let named = output
        .lines()
        .rev()
        .find_map(|line| line.split_once("BROKEN: "));
    match named {
        Some((_, promises)) => promises.to_owned(),
        None => {
            let last = output.lines().rev().find(|line| !line.trim().is_empty());
            last.unwrap_or("it said nothing").replace('|', "/")
        }
    }
}
