//! One scenario with one bug on, or with none.

use std::process::{Command, ExitStatus};
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold_testkit::servers::redis::Redis;

use super::copy::Copy;
use super::plant;
use crate::Outcome;

/// How long a scenario may take, in microseconds.
const PATIENCE: u64 = 120_000_000;

/// The file and the name of the test that a scenario is, if it is one.
pub(super) fn test_of(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("test ")?.split_once(' ')
}

/// The promise that the scenario found broken, if any.
pub(super) fn catches(copy: &Copy, text: &str, planted: &str) -> Outcome<Option<String>> {
    let redis = text.contains("{redis}").then(Redis::start);
    let url = redis.as_ref().map(Redis::url).unwrap_or_default();
    let mut command = match test_of(text) {
        None => {
            let mut lab = Command::new(&copy.lab);
            let _ = lab.args(text.replace("{redis}", &url).split(' '));
            lab
        }
        Some((file, name)) => {
            let program = copy
                .tests
                .get(file)
                .ok_or_else(|| format!("no test {file}"))?;
            let mut test = Command::new(program);
            let _ = test.args(["--exact", name]);
            test
        }
    };
    let output = copy.into.join("output");
    let said = std::fs::File::create(&output)?;
    let _ = command
        .current_dir(&copy.into)
        .env(plant::SWITCH, planted)
        .stdout(said.try_clone()?)
        .stderr(said);
    let ended = run(command)?;
    let said = std::fs::read_to_string(&output)?;
    if test_of(text).is_some() && !said.contains("running 1 test") {
        return Err(format!("{text} is no test:\n{said}").into());
    }
    Ok(match ended {
        None => Some("progress: it does not end".to_owned()),
        Some(status) => (!status.success()).then(|| promises(&said)),
    })
}

/// How it ended; none if it had to be ended.
fn run(mut command: Command) -> Outcome<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    let clock = Clock::boot();
    let end = clock.now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if clock.now() > end {
            child.kill()?;
            let _ = child.wait()?;
            return Ok(None);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The promises that a scenario names, the panic of a test, or the last line of output.
fn promises(output: &str) -> String {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let named = output
        .lines()
        .rev()
        .find_map(|line| line.split_once("BROKEN: "));
    if let Some((_, promises)) = named {
        return promises.to_owned();
    }
    let mut panicked = lines
        .clone()
        .skip_while(|line| !line.contains("panicked at"));
    let said = panicked.nth(1).or_else(|| lines.next_back());
    said.unwrap_or("it said nothing").replace('|', "/")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The text of a file, or of all files of a folder.
    fn source(path: &Path) -> String {
        let Ok(entries) = std::fs::read_dir(path) else {
            return std::fs::read_to_string(path).unwrap_or_default();
        };
        entries
            .map(|entry| source(&entry.unwrap().path()))
            .collect()
    }

    /// A test stands in the module that its name begins with, or in the contract.
    #[test]
    fn every_scenario_that_is_a_test_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tests = crates.join("leasehold-tests/tests");
        let contract = source(&crates.join("leasehold/src/conformance"));
        for mutant in crate::mutants::list::all() {
            let Some((file, name)) = test_of(mutant.scenario) else {
                continue;
            };
            let (modules, test) = name.rsplit_once("::").unwrap();
            let module = tests.join(file).join(modules.split("::").next().unwrap());
            let mut text = source(&module) + &source(&module.with_extension("rs"));
            if text.contains("conformance_tests!") {
                text += &contract;
            }
            assert!(text.contains(&format!("fn {test}(")), "{}", mutant.scenario);
        }
    }

    #[test]
    fn broken_promises_are_read_from_the_output() {
        assert_eq!(promises("x\nBROKEN: exclusion\nreport: y"), "exclusion");
        let test =
            "running 1 test\nthread 'x' panicked at a.rs:1:2:\nP1: two hold\nnote: z\nFAILED";
        assert_eq!(promises(test), "P1: two hold");
        assert_eq!(promises("a\nb | c\n\n"), "b / c");
        assert_eq!(
            test_of("test engine_x order::first"),
            Some(("engine_x", "order::first"))
        );
        assert_eq!(test_of("simulate mutex"), None);
    }
}
