//! A history as a picture: one lane per client, waits thin, holds thick, broken promises in red.

use std::fmt::Write;

use crate::check::Verdict;
use crate::history::{Answer, History, Hold};

const WIDTH: f64 = 900.0;
const LANE: f64 = 46.0;
const LEFT: f64 = 110.0;

/// With more clients than this, only those are drawn that ever held.
const MOST_LANES: usize = 24;

/// The picture, as SVG.
pub fn svg(history: &History, verdict: &Verdict, title: &str) -> String {
    let start = history
        .holds
        .iter()
        .map(|hold| hold.call)
        .min()
        .unwrap_or(0);
    let last = history
        .holds
        .iter()
        .map(|hold| hold.end.min(hold.free))
        .max()
        .unwrap_or(start + 1);
    let last = history
        .effects
        .iter()
        .map(|effect| effect.t)
        .fold(last, u64::max);
    let scale = (WIDTH - LEFT - 30.0) / (last - start).max(1) as f64;
    let x = |t: u64| LEFT + t.clamp(start, last).saturating_sub(start) as f64 * scale;
    let mut lanes: Vec<u32> = history.holds.iter().map(|hold| hold.who).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let all = lanes.len();
    if all > MOST_LANES {
        let held = |who: &u32| {
            let own = |hold: &Hold| hold.who == *who && hold.answer == Answer::Granted;
            history.holds.iter().any(own)
        };
        lanes.retain(held);
    }
    let y = |who: u32| 60.0 + LANE * lanes.iter().position(|lane| *lane == who).unwrap_or(0) as f64;
    let height = 80.0 + LANE * lanes.len() as f64 + 18.0 * verdict.broken.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"20\" y=\"28\" font-size=\"16\">{}</text>\n",
        escape(title)
    );
    for lane in &lanes {
        let _ = writeln!(
            out,
            "<text x=\"20\" y=\"{:.0}\">{}</text>",
            y(*lane) + 5.0,
            escape(&history.whos[*lane as usize])
        );
    }
    if all > lanes.len() {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"28\">{} more wait all the time</text>",
            WIDTH - 220.0,
            all - lanes.len()
        );
    }
    for hold in history
        .holds
        .iter()
        .filter(|hold| lanes.contains(&hold.who))
    {
        let y = y(hold.who);
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>",
            x(hold.call),
            x(hold.got)
        );
        if hold.answer == Answer::Granted {
            let (from, to) = (x(hold.got), x(hold.end).max(x(hold.got) + 2.0));
            // Near the right edge the words end there instead of beginning.
            let (text, anchor) = match from > WIDTH - 200.0 {
                true => (to, "end"),
                false => (from + 4.0, "start"),
            };
            let fence = if hold.fence > 0 {
                format!("holds, fence {}", hold.fence)
            } else {
                "holds".to_owned()
            };
            let _ = writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" rx=\"3\" fill=\"#4a7ab5\" fill-opacity=\"0.7\"/><text x=\"{text:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"{anchor}\">{fence}</text>",
                y - 9.0,
                to - from,
                y - 12.0
            );
        }
    }
    for effect in &history.effects {
        let colour = if effect.accepted { "#2a7d3a" } else { "#999" };
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{colour}\"/>",
            x(effect.t),
            y(effect.by)
        );
    }
    for (index, broken) in verdict.broken.iter().enumerate() {
        let base = 60.0 + LANE * lanes.len() as f64;
        if broken.t > 0 {
            let at = x(broken.t);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"40\" y2=\"{base:.0}\" stroke=\"#c22\"/>"
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"20\" y=\"{:.0}\" fill=\"#c22\">broken: {}</text>",
            base + 10.0 + 18.0 * index as f64,
            broken.promise
        );
    }
    out + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
