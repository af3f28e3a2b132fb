//! Fences against calls and answers.

use leasehold::engine::Micros;

use super::verdict::{Promise, Verdict};
use crate::history::Hold;

/// The latest each hold can have begun, by the fences: it came before every hold with a larger fence, and so no later than
/// any of them was answered. Readers do not order each other: those of one process share a grant, and its block of fences.
///
/// The holds are those of one name, in order of fences. Where there are no fences a hold begins with its answer.
pub(super) fn begins(holds: &[Hold]) -> Vec<(Micros, usize)> {
    let mut begins: Vec<(Micros, usize)> = holds
        .iter()
        .enumerate()
        .map(|(index, hold)| (hold.got, index))
        .collect();
    let (mut any, mut alone) = ((Micros::MAX, 0), (Micros::MAX, 0));
    for (index, hold) in holds
        .iter()
        .enumerate()
        .rev()
        .take_while(|(_, hold)| hold.fence > 0)
    {
        let reads = hold.capacity == u32::MAX && hold.weight < hold.capacity;
        let later = if reads { alone } else { any };
        // Also at the same instant: then the fences say which came first.
        if later.0 <= begins[index].0 {
            begins[index] = later;
        }
        any = any.min(begins[index]);
        if !reads {
            alone = alone.min(begins[index]);
        }
    }
    begins
}

/// The outermost holds of one name, in order of fences. Locks without fences promise nothing here.
pub(super) fn judge(holds: &[Hold], begins: &[(Micros, usize)], verdict: &mut Verdict) {
    for pair in holds
        .windows(2)
        .filter(|pair| pair[0].fence > 0 && pair[0].fence == pair[1].fence)
    {
        verdict.broke(Promise::FenceOrder, pair[0].name, pair[1].got, |verdict| {
            format!(
                "{} has the fence of {}",
                verdict.say(&pair[1]),
                verdict.say(&pair[0])
            )
        });
    }
    for (hold, (begin, before)) in holds.iter().zip(begins) {
        if *begin < hold.call {
            verdict.broke(Promise::FenceOrder, hold.name, hold.got, |verdict| {
                let (hold, before) = (verdict.say(hold), verdict.say(&holds[*before]));
                format!("{before} was answered before {hold} asked, and has the larger fence")
            });
        }
    }
}
