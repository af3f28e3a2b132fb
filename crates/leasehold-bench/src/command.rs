//! `leasehold run NAME -- true` beside `flock FILE true`.

use std::process::Command;

use crate::Settings;
use crate::measure::{Outcome, Watch, duel};
use crate::table::{Goal, Row};

const RUNS: u32 = 50;

/// Needs the command's path: `--command PATH` or `LEASEHOLD_BIN`.
pub(crate) fn run_true(settings: &Settings) -> Outcome<()> {
    let Some(program) = &settings.command else {
        println!("skipped `leasehold run`: give its path with --command PATH or LEASEHOLD_BIN");
        return Ok(());
    };
    let place = settings.place()?;
    let file = place.path("flock");
    let ours = || {
        let mut command = Command::new(program);
        let _ = command.args(["--url", &place.url, "run", "bench", "--", "true"]);
        millis_each(command)
    };
    let peer = || {
        let mut command = Command::new("flock");
        let _ = command.arg(&file).arg("true");
        millis_each(command)
    };
    let duel = duel(settings.repeats, ours, peer)?;
    Row::ratio("leasehold run NAME -- true", "ms", &duel, Goal::AtMost(3.0)).print();
    Ok(())
}

fn millis_each(mut command: Command) -> Outcome<f64> {
    let watch = Watch::start();
    for _ in 0..RUNS {
        let status = command.status()?;
        if !status.success() {
            return Err(format!("{command:?} ended with {status}").into());
        }
    }
    Ok(watch.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS))
}
