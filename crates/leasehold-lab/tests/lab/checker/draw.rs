//! Small random histories.

use leasehold_lab::history::{Answer, History, Hold, NEVER};
use leasehold_lab::random::Random;

/// The capacities: a mutex, a semaphore of 2 and of 3, a read/write lock.
const CAPACITIES: [u32; 4] = [1, 2, 3, u32::MAX];

/// Up to seven requests for one name, most of them near each other, so that about half of all histories are good.
pub(crate) fn history(random: &mut Random) -> History {
    let capacity = *random.pick(&CAPACITIES);
    let with_fences = !random.one_in(4);
    let spread = *random.pick(&[6, 12, 30]);
    let count = random.within(1, 8);
    let mut holds: Vec<Hold> = (0..count)
        .map(|op| hold(random, op, capacity, spread))
        .collect();
    if with_fences {
        give_fences(random, &mut holds);
    }
    History {
        names: vec!["x".into()],
        whos: (0..8).map(|who| format!("w{who}")).collect(),
        holds,
        ..History::default()
    }
}

fn hold(random: &mut Random, op: u64, capacity: u32, spread: u64) -> Hold {
    let weight = match capacity {
        u32::MAX => *random.pick(&[1, 1, u32::MAX]),
        _ => random.within(1, u64::from(capacity) + 1) as u32,
    };
    let call = random.below(spread);
    let got = call + random.below(5);
    let end = got + random.below(4);
    let answer = match random.below(10) {
        0 | 1 => Answer::Busy,
        2 => Answer::Unknown,
        3 => Answer::Failed,
        _ => Answer::Granted,
    };
    let free = match answer {
        Answer::Granted if random.one_in(4) => NEVER,
        Answer::Granted => end + random.below(3),
        Answer::Unknown => NEVER,
        _ => got,
    };
    Hold {
        name: 0,
        who: op as u32,
        op,
        weight,
        capacity,
        owner: 0,
        answer,
        waits: random.one_in(3),
        several: random.one_in(4),
        told_held: false,
        asked: false,
        hit: false,
        call,
        queued: NEVER,
        got,
        end: if answer == Answer::Granted { end } else { got },
        free,
        fence: 0,
    }
}

/// Mostly in the order of the answers, sometimes with two exchanged or one given twice.
fn give_fences(random: &mut Random, holds: &mut [Hold]) {
    let mut order: Vec<usize> = (0..holds.len())
        .filter(|index| holds[*index].answer == Answer::Granted)
        .collect();
    order.sort_by_key(|index| holds[*index].got);
    if order.len() > 1 && random.one_in(2) {
        let at = random.below(order.len() as u64 - 1) as usize;
        order.swap(at, at + 1);
    }
    let mut fence = 0;
    for index in order {
        fence += u64::from(fence == 0 || !random.one_in(20));
        holds[index].fence = fence;
    }
}
