//! The printed table.

use crate::measure::{Duel, Spread};

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: String,
    pub(crate) peer: String,
    pub(crate) figure: String,
    pub(crate) goal: String,
    /// Whether the median reaches the goal, where there is one.
    pub(crate) met: Option<bool>,
}

#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn met(self, figure: Spread) -> bool {
        match self {
            Self::AtMost(most) => figure.median <= most,
            Self::AtLeast(least) => figure.median >= least,
        }
    }

    fn shown(self, unit: &str) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most}{unit}"),
            Self::AtLeast(least) => format!(">= {least}{unit}"),
        }
    }
}

impl Row {
    /// Ours by the peer's against a goal.
    pub(crate) fn ratio(name: &str, unit: &str, duel: &Duel, goal: Goal) -> Self {
        Self {
            name: name.to_owned(),
            ours: amount(duel.ours.median, unit),
            peer: amount(duel.peer.median, unit),
            figure: format!("{}x", duel.ratio),
            goal: goal.shown("x"),
            met: Some(goal.met(duel.ratio)),
        }
    }

    /// One by the other, to compare with: no goal.
    #[cfg(any(feature = "zookeeper", feature = "redis"))]
    pub(crate) fn read(name: &str, unit: &str, duel: &Duel) -> Self {
        let (ours, peer) = (
            amount(duel.ours.median, unit),
            amount(duel.peer.median, unit),
        );
        let figure = format!("{}x", duel.ratio);
        Self {
            figure,
            ..Self::note(name, ours, peer)
        }
    }

    /// A figure of its own against a goal.
    pub(crate) fn alone(name: &str, unit: &str, ours: Spread, goal: Goal) -> Self {
        Self {
            name: name.to_owned(),
            ours: amount(ours.median, unit),
            peer: "-".to_owned(),
            figure: format!("{ours} {unit}"),
            goal: goal.shown(&format!(" {unit}")),
            met: Some(goal.met(ours)),
        }
    }

    /// Something to read, with no goal.
    pub(crate) fn note(name: &str, ours: String, peer: String) -> Self {
        let (figure, goal) = (String::new(), String::new());
        Self {
            name: name.to_owned(),
            ours,
            peer,
            figure,
            goal,
            met: None,
        }
    }

    pub(crate) fn print(&self) {
        let met = match self.met {
            None => "",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        let Self {
            name,
            ours,
            peer,
            figure,
            goal,
            ..
        } = self;
        println!("| {name:<44} | {ours:>20} | {peer:>20} | {figure:<28} | {goal:<11} | {met:<6} |");
    }
}

fn amount(value: f64, unit: &str) -> String {
    match value >= 1e3 {
        true => format!("{value:.0} {unit}"),
        false => format!("{value:.3} {unit}"),
    }
}

/// The head of the table.
pub(crate) fn print_head() {
    let cells = [
        ("bench", 44),
        ("ours", 20),
        ("peer", 20),
        ("ratio or figure [low..high]", 28),
        ("goal", 11),
        ("", 6),
    ];
    let titles: Vec<_> = cells
        .iter()
        .map(|(title, w)| format!(" {title:<w$} "))
        .collect();
    let rules: Vec<_> = cells.iter().map(|(_, w)| "-".repeat(w + 2)).collect();
    println!("|{}|\n|{}|", titles.join("|"), rules.join("|"));
}
