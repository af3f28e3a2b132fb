//! Leasehold and its peers side by side: prints ratios measured in one run.

mod measure;
mod memory;
mod table;

use measure::Outcome;

/// What to measure, and how often.
pub(crate) struct Settings {
    /// How often each pair is measured.
    pub(crate) repeats: usize,
    /// The parts to run; all if there are none.
    only: Vec<String>,
}

const USAGE: &str = "leasehold-bench [--repeats N] [--only PART]...";

fn settings() -> Outcome<Settings> {
    let mut settings = Settings {
        repeats: 5,
        only: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--repeats" => settings.repeats = value.parse()?,
            "--only" => settings.only.push(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(settings)
}

type Part = fn(&Settings) -> Outcome<()>;

const PARTS: &[(&str, Part)] = &[
    ("uncontended", memory::uncontended),
    ("contended", memory::contended),
];

fn main() -> Outcome<()> {
    let settings = settings()?;
    table::print_head();
    for (name, part) in PARTS {
        if settings.only.is_empty() || settings.only.iter().any(|only| only == name) {
            part(&settings)?;
        }
    }
    Ok(())
}
