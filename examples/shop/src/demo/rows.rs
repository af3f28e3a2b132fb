//! A row for each way: what was sold, what was not there to be sold, and how fast it went.

use std::time::Duration;

use hyper::{Method, StatusCode};

use super::fleet::Fleet;
use super::load::{Load, buy};

/// A way in the table: its word in the path, and its name.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// In the path.
    pub word: &'static str,
    /// In the table.
    pub name: &'static str,
}

const fn named(word: &'static str, name: &'static str) -> Named {
    Named { word, name }
}

/// Without a lock that both instances know.
pub const WRONG: [Named; 2] = [
    named("none", "no lock"),
    named("own", "each instance's own lock"),
];

/// A lock made by hand, for work that is longer than its expiry.
pub const OVERRUN: Named = named("setnx-5", "`SETNX` by hand, work longer than its expiry");

/// What keeps the stock, as long as nothing goes wrong.
pub const RIGHT: [Named; 5] = [
    named("setnx-5", "`SETNX` by hand, stage 5"),
    named("fail-fast", "Leasehold, busy at once"),
    named("row-lock", "`SELECT … FOR UPDATE`"),
    named("version", "version column"),
    named("segments", "Leasehold, stock in 16 segments"),
];

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The way.
    pub way: String,
    /// Requests, those that were told "busy" among them.
    pub requests: usize,
    /// Requests that were told that they have a piece.
    pub sold: i64,
    /// Pieces that were sold and are still in the stock, or never were there.
    pub oversold: i64,
    /// Requests that were told to come again.
    pub busy: usize,
    /// How long half of the sales took at most, from when the client first asked, in milliseconds.
    pub p50: f64,
    /// How long all but a hundredth of the sales took at most.
    pub p99: f64,
    /// Sales per second.
    pub per_second: f64,
}

/// The head of the table.
pub const HEAD: &str = "| way | requests | sold | oversold | busy | p50 | p99 | sold per second |\n|---|--:|--:|--:|--:|--:|--:|--:|";

impl Row {
    /// Buys an item in a way. The number of the item is new.
    ///
    /// # Panics
    /// If a request failed, the books and the buyers do not agree on the number of sales, or one instance sold all.
    pub fn measure(fleet: &Fleet, load: Load, way: Named, name: &str, item: u64) -> Self {
        let path = format!("/items/{item}/{}", way.word);
        let filled = fleet.send(Method::PUT, &format!("{path}?left={}", load.stock));
        assert_eq!(filled.status, StatusCode::OK, "{filled}");
        let told = buy(fleet, load, &path);
        let failed = told.failed.first();
        assert!(
            failed.is_none(),
            "{name}: {} failed: {failed:?}",
            told.failed.len()
        );
        let both = told.instances.len() == fleet.instances.len();
        assert!(both, "{name}: sales of each instance: {:?}", told.instances);
        let books = fleet.send(Method::GET, &path).json();
        let number = |field: &str| books[field].as_i64().expect("a number");
        let sold = told.sold.len() as i64;
        assert_eq!(number("sold"), sold, "{name}: the books and the buyers");
        Self {
            way: name.to_owned(),
            requests: told.requests(),
            sold,
            oversold: sold + number("left") - load.stock,
            busy: told.busy,
            p50: percentile(&told.sold, 0.5),
            p99: percentile(&told.sold, 0.99),
            per_second: (sold as f64 / told.span.as_secs_f64()).round(),
        }
    }

    /// Its line of the table.
    pub fn line(&self) -> String {
        let oversold = match self.oversold {
            0 => "0".to_owned(),
            wrong => format!("**{wrong}**"),
        };
        format!(
            "| {} | {} | {} | {oversold} | {} | {:.1} ms | {:.1} ms | {:.0} |",
            self.way, self.requests, self.sold, self.busy, self.p50, self.p99, self.per_second
        )
    }

    /// A line of the table, if it is one.
    pub fn parse(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let cells: Vec<_> = cells.collect();
        let [way, requests, sold, oversold, busy, p50, p99, per_second] = cells[..] else {
            return None;
        };
        let millis = |cell: &str| cell.strip_suffix(" ms")?.parse().ok();
        Some(Self {
            way: way.to_owned(),
            requests: requests.parse().ok()?,
            sold: sold.parse().ok()?,
            oversold: oversold.trim_matches('*').parse().ok()?,
            busy: busy.parse().ok()?,
            p50: millis(p50)?,
            p99: millis(p99)?,
            per_second: per_second.parse().ok()?,
        })
    }
}

/// The table.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let lines = rows.into_iter().map(|row| format!("\n{}", row.line()));
    format!("{HEAD}{}", lines.collect::<String>())
}

fn percentile(sorted: &[Duration], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * part).ceil() as usize;
    let took = sorted.get(at).copied().unwrap_or_default();
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let row = Row {
            way: WRONG[1].name.to_owned(),
            requests: 300,
            sold: 190,
            oversold: 90,
            busy: 3,
            p50: 5.1,
            p99: 30.4,
            per_second: 211.0,
        };
        assert_eq!(Row::parse(&row.line()), Some(row));
        assert_eq!(HEAD.lines().find_map(Row::parse), None);
    }
}
