//! The copy of the source, with every bug in it, and what is built of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::plant;
use super::scenario::test_of;
use crate::Outcome;

/// A built copy of the library.
pub(super) struct Copy {
    /// Where scenarios run and leave what they leave.
    pub(super) into: PathBuf,
    pub(super) lab: PathBuf,
    /// By file.
    pub(super) tests: BTreeMap<String, PathBuf>,
}

impl Copy {
    /// Copies, plants, and builds what the scenarios need.
    pub(super) fn build(
        source: &Path,
        into: &Path,
        scenarios: &BTreeSet<&'static str>,
    ) -> Outcome<Self> {
        std::fs::create_dir_all(into)?;
        let copy = into.join("source");
        copy_source(source, &copy)?;
        plant::all(&copy.join("crates/leasehold/src"))?;
        let tests: BTreeSet<_> = scenarios
            .iter()
            .filter_map(|text| test_of(text))
            .map(|(file, _)| file)
            .collect();
        let target = into.join("target");
        let tests = build(&copy, &target, &tests)?;
        Ok(Self {
            into: into.to_owned(),
            lab: target.join("debug/leasehold-lab"),
            tests,
        })
    }
}

fn copy_source(source: &Path, copy: &Path) -> Outcome<()> {
    if copy.exists() {
        std::fs::remove_dir_all(copy)?;
    }
    std::fs::create_dir_all(copy)?;
    let parts = [
        "crates",
        "examples",
        "interop",
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
    ]
    .map(|part| source.join(part));
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

/// The lab and the tests; where each test was put.
fn build(copy: &Path, target: &Path, tests: &BTreeSet<&str>) -> Outcome<BTreeMap<String, PathBuf>> {
    let mut command = Command::new("cargo");
    let _ = command
        .args(["build", "--quiet", "--all-features", "-p", "leasehold-lab"])
        .args([
            "--bin",
            "leasehold-lab",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(["--config", "profile.dev.package.leasehold-lab.opt-level=0"])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(copy)
        .stderr(Stdio::inherit());
    if !tests.is_empty() {
        let _ = command.args(["-p", "leasehold-tests"]);
        let _ = command.args(tests.iter().flat_map(|test| ["--test", test]));
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err("the copy does not build".into());
    }
    let mut built = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let said: serde_json::Value = serde_json::from_str(line)?;
        let (name, program) = (&said["target"]["name"], &said["executable"]);
        if let (Some(name), Some(program)) = (name.as_str(), program.as_str()) {
            let _ = built.insert(name.to_owned(), program.into());
        }
    }
    Ok(built)
}
