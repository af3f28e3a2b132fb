//! `docs/track-record.md`: one row per report, never written by hand.

use std::path::Path;

use super::Report;
use crate::Outcome;

const HEAD: &str = "\
# Track record

Written by `leasehold-lab record REPORT`, one row per run of `leasehold-lab torture`; not by hand. A run that broke a promise
has its row too. *On a held lock* counts the faults that hit a process while it held a lock; *refused* are effects of
stale holders that a resource with a fence check did not take.

| date | commit | engine | seed | minutes | processes | lease | faults | holds | contended | faults made | on a held lock | losses told | refused | verdict |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Adds a report's row to the ledger, once.
///
/// # Errors
/// If a file cannot be read or written.
pub fn record(report: &Path, ledger: &Path) -> Outcome<()> {
    let row = row(&Report::load(report)?);
    let text = match std::fs::read_to_string(ledger) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => HEAD.to_owned(),
        Err(error) => return Err(error.into()),
    };
    if !text.contains(&row) {
        std::fs::write(ledger, text + &row)?;
    }
    Ok(())
}

fn row(report: &Report) -> String {
    let number = |key: &str| {
        report
            .stats
            .get(key)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    };
    let verdict = if report.good { "kept" } else { "BROKEN" };
    format!(
        "| {} | {} | {} | {} | {:.1} | {} | {} ms | {} | {} | {} | {} | {} | {} | {} | {verdict} |\n",
        date(report.when),
        report.commit,
        report.engine,
        report.seed,
        report.seconds as f64 / 60.0,
        report.workers,
        report.lease_ms,
        report.faults.join(", "),
        number("holds"),
        number("contended"),
        number("faults"),
        number("faults_held"),
        number("losses"),
        number("refused"),
    )
}

/// The day of a wall-clock second, as in 2026-01-31 (days to civil date, proleptic Gregorian).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_767_225_599), "2025-12-31");
        assert_eq!(date(1_767_225_600), "2026-01-01");
    }
}
