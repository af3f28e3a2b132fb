//! "Busy" is told only if another request may have held or waited.

use leasehold::engine::Micros;

use super::verdict::{Promise, Verdict};
use crate::history::{Answer, Hold};

/// All requests for one name.
pub(super) fn judge(holds: &[Hold], verdict: &mut Verdict) {
    if holds.iter().all(|hold| hold.answer != Answer::Busy) {
        return;
    }
    let possible = Possible::new(holds);
    for hold in holds.iter().filter(|hold| hold.answer == Answer::Busy) {
        // A request that waited is in the sum already.
        let (own, counted) = match hold.waits {
            true => (0, on_its_way(hold)),
            false => (u64::from(hold.weight), 0),
        };
        if possible.most(hold.call, hold.got) + own <= u64::from(hold.capacity) + counted {
            verdict.broke(Promise::ToldOutcome, hold.name, hold.got, |verdict| {
                format!(
                    "{} was told busy, and no other request can have been in its way",
                    verdict.say(hold)
                )
            });
        }
    }
}

/// The extra weight of a request until it is answered. An engine may take several permits one after the
/// other; until it has them all, the request is in line, and no other passes.
fn on_its_way(hold: &Hold) -> u64 {
    match hold.weight {
        0 | 1 => 0,
        _ => u64::from(hold.capacity),
    }
}

/// The most that can have been taken, at any time: every request from its call until it surely holds nothing.
struct Possible {
    starts: Vec<Micros>,
    /// The sum of the weights that started before each.
    started: Vec<u64>,
    ends: Vec<Micros>,
    ended: Vec<u64>,
    /// The largest of a range of starts: a segment tree.
    tree: Vec<u64>,
}

impl Possible {
    fn new(holds: &[Hold]) -> Self {
        let counts = |hold: &&Hold| match hold.answer {
            Answer::Granted | Answer::Unknown => true,
            // A request that waited stood in line, however it ended: also if its place ended and its next try failed.
            Answer::Busy | Answer::Failed => hold.waits,
        };
        let column = |of: fn(&Hold) -> [(Micros, u64); 2]| {
            let mut column: Vec<_> = holds.iter().filter(counts).flat_map(of).collect();
            column.retain(|(_, weight)| *weight > 0);
            column.sort_unstable();
            let mut sum = 0;
            let mut sums = vec![0];
            sums.extend(column.iter().map(|(_, weight)| {
                sum += weight;
                sum
            }));
            (column.into_iter().map(|(t, _)| t).collect::<Vec<_>>(), sums)
        };
        let (starts, started) = column(|hold| {
            [
                (hold.call, hold.weight.into()),
                (hold.call, on_its_way(hold)),
            ]
        });
        let (ends, ended) = column(|hold| {
            [
                (hold.free, hold.weight.into()),
                (hold.got, on_its_way(hold)),
            ]
        });
        let mut this = Self {
            starts,
            started,
            ends,
            ended,
            tree: Vec::new(),
        };
        let leaves: Vec<u64> = this.starts.iter().map(|t| this.at(*t)).collect();
        let half = leaves.len();
        this.tree = vec![0; half];
        this.tree.extend(leaves);
        for node in (1..half).rev() {
            this.tree[node] = this.tree[2 * node].max(this.tree[2 * node + 1]);
        }
        this
    }

    fn at(&self, t: Micros) -> u64 {
        let started = self.starts.partition_point(|start| *start <= t);
        let ended = self.ends.partition_point(|end| *end < t);
        self.started[started] - self.ended[ended]
    }

    /// The most at any instant of a closed interval: at its begin, or where something starts in it.
    fn most(&self, from: Micros, to: Micros) -> u64 {
        let half = self.starts.len();
        let mut low = half + self.starts.partition_point(|start| *start <= from);
        let mut high = half + self.starts.partition_point(|start| *start <= to);
        let mut most = self.at(from);
        while low < high {
            if low % 2 == 1 {
                most = most.max(self.tree[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                most = most.max(self.tree[high]);
            }
            low /= 2;
            high /= 2;
        }
        most
    }
}
