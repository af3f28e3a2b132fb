//! Planted bugs: each is one change to our own source, made in a copy; the scenario named with it must catch it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;

/// One planted bug.
#[derive(Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The file below `crates/leasehold/src`.
    pub file: &'static str,
    /// What stands there, once.
    pub before: &'static str,
    /// What stands there instead.
    pub after: &'static str,
    /// What must catch it: arguments of `leasehold-lab`.
    pub scenario: &'static str,
}

const MUTEX: &str = "simulate mutex --seeds 500";
const SEMAPHORE: &str = "simulate semaphore --seeds 500";
const MANY: &str = "simulate many-and-again --seeds 500";
const FILE: &str = "torture file: --for 6s --seed 1";
const FILE_BUSY: &str = "torture file: --for 10s --seed 1 --workers 6 --rest 1ms --faults kill";

const fn mutant(
    name: &'static str,
    file: &'static str,
    before: &'static str,
    after: &'static str,
    scenario: &'static str,
) -> Mutant {
    Mutant {
        name,
        file,
        before,
        after,
        scenario,
    }
}

/// All of them.
pub const MUTANTS: [Mutant; 19] = [
    mutant(
        "release by anybody",
        "line.rs",
        "let Some(index) = self.find(id) else {\n            return (Release::Gone, changes);",
        "let Some(index) = self.find(id).or((self.held > 0).then_some(0)) else {\n            return (Release::Gone, changes);",
        MUTEX,
    ),
    mutant(
        "one more than fits",
        "line.rs",
        "<= u64::from(self.capacity)\n",
        "<= u64::from(self.capacity) + 1\n",
        MUTEX,
    ),
    mutant(
        "newcomers are let in past the line",
        "line.rs",
        "let fits = first && self.fits",
        "let fits = self.fits",
        SEMAPHORE,
    ),
    mutant(
        "fences start again on an idle name",
        "line.rs",
        "let fence = self.last.max(floor).saturating_add(1);",
        "let fence = self.last.saturating_add(u64::from(floor > 0));",
        MUTEX,
    ),
    mutant(
        "expired before the lease is over",
        "line.rs",
        "place.deadline <= at.now ||",
        "place.deadline.saturating_sub(1_000_000) <= at.now ||",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the claim",
        "session/asking.rs",
        "entry.heard(sent);\n                entry.hold",
        "entry.heard(self.clock.now());\n                entry.hold",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the heartbeat",
        "session/heartbeat.rs",
        "self.stands(claim, beat.sent, standing);",
        "self.stands(claim, self.clock.now(), standing);",
        MUTEX,
    ),
    mutant(
        "validity beyond the lease",
        "session/grant.rs",
        "sent.saturating_add(lease - margin)",
        "sent.saturating_add(lease + margin * 4)",
        MUTEX,
    ),
    mutant(
        "a lost push is not repaired",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Granted(held));",
        "let _ = held;",
        MUTEX,
    ),
    mutant(
        "a heartbeat that finds nothing counts as a renewal",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Ended(why));",
        "entry.heard(sent);\n                let _ = why;",
        MUTEX,
    ),
    mutant(
        "asks again under the same id",
        "session/asking.rs",
        "claim.id = ClaimId::random();",
        "",
        MUTEX,
    ),
    mutant(
        "a release misreads its answer",
        "session/keeper.rs",
        "if release == Release::Gone {\n                    grant.lose(Ended::Forgotten);\n                }\n                Ok(release)",
        "Ok(Release::Released)",
        MUTEX,
    ),
    mutant(
        "a grant serves two tasks at once",
        "turns/state.rs",
        "let free = self.users.is_empty() || (self.mode == Mode::Read);",
        "let free = true;",
        MUTEX,
    ),
    mutant(
        "every turn has the grant's fence",
        "session/grant.rs",
        "self.first.get() + u64::from(turn)",
        "self.first.get()",
        MUTEX,
    ),
    mutant(
        "the inner release ends the outer hold",
        "turns/state.rs",
        "user.depth += 1;",
        "",
        MANY,
    ),
    mutant(
        "anybody of the process re-enters",
        "turns/state.rs",
        "active.users.iter_mut().find(|user| user.who == ask.who)?",
        "active.users.iter_mut().next()?",
        MANY,
    ),
    mutant(
        "a line's file is locked for reading only",
        "engines/file/store.rs",
        "match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {",
        "match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {",
        FILE_BUSY,
    ),
    mutant(
        "a living session looks dead",
        "engines/file/alive.rs",
        "NonBlockingLockShared).is_err() {\n        return false;",
        "NonBlockingLockShared).is_err() {\n        return true;",
        FILE,
    ),
    mutant(
        "a removed file is locked",
        "engines/file/store.rs",
        "if found.st_nlink == 0 {",
        "if false {",
        FILE,
    ),
];

/// Builds and runs each in a copy of the source below `into`; prints caught or missed. Whether all were caught.
///
/// # Errors
/// If a copy cannot be made or built.
pub fn run(source: &Path, into: &Path, only: Option<&str>) -> Outcome<bool> {
    std::fs::create_dir_all(into)?;
    let copy = into.join("source");
    copy_source(source, &copy)?;
    let mut all = true;
    println!("| planted bug | where | scenario | |\n|---|---|---|---|");
    for mutant in MUTANTS
        .iter()
        .filter(|mutant| only.is_none_or(|only| mutant.name.contains(only)))
    {
        let _planted = Planted::new(mutant, &copy)?;
        let program = build(&copy, into)?;
        let caught = !scenario(&program, mutant, into)?;
        all &= caught;
        let word = if caught { "caught" } else { "MISSED" };
        println!(
            "| {} | {} | {} | {word} |",
            mutant.name, mutant.file, mutant.scenario
        );
    }
    Ok(all)
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

/// A bug in the copy; taken out again when this is dropped. Written both times, so that it is built both times.
struct Planted {
    path: PathBuf,
    text: String,
}

impl Planted {
    fn new(mutant: &Mutant, copy: &Path) -> Outcome<Self> {
        let path = copy.join("crates/leasehold/src").join(mutant.file);
        let text = std::fs::read_to_string(&path)?;
        if text.matches(mutant.before).count() != 1 {
            return Err(format!(
                "{}: {} no longer has the place for it",
                mutant.name, mutant.file
            )
            .into());
        }
        std::fs::write(&path, text.replace(mutant.before, mutant.after))?;
        Ok(Self { path, text })
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, &self.text);
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
            "--config",
            "profile.dev.package.leasehold-lab.opt-level=0",
        ])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(copy)
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        return Err("the copy does not build".into());
    }
    Ok(target.join("debug/leasehold-lab"))
}

/// Whether the scenario found nothing.
fn scenario(program: &Path, mutant: &Mutant, into: &Path) -> Outcome<bool> {
    let mut command = Command::new(program);
    let _ = command
        .args(mutant.scenario.split(' '))
        .current_dir(into)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    // A bug may make it hang; that is caught, too.
    let clock = leasehold::engine::Clock::boot();
    let end = clock.now() + 180_000_000;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if clock.now() > end {
            child.kill()?;
            let _ = child.wait()?;
            return Ok(false);
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_has_its_place() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leasehold/src");
        for mutant in &MUTANTS {
            let text = std::fs::read_to_string(source.join(mutant.file)).unwrap();
            assert_eq!(text.matches(mutant.before).count(), 1, "{}", mutant.name);
        }
    }
}
