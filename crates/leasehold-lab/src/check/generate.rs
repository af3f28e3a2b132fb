//! Large histories of a correct lock, to see how long judging takes.

use crate::history::{Answer, Effect, History, Hold, NEVER};
use crate::random::Random;

/// So many holds of a correct mutex on so many names, with waits, tries and effects.
pub fn correct(holds: usize, names: u32, seed: u64) -> History {
    let mut random = Random::new(seed);
    let mut free = vec![1_000_000_u64; names as usize];
    let mut fences = vec![0_u64; names as usize];
    let mut history = History {
        names: (0..names).map(|name| format!("name-{name}")).collect(),
        whos: (0..64).map(|who| format!("worker-{who}")).collect(),
        ..History::default()
    };
    history.holds.reserve(holds);
    for op in 0..holds as u64 {
        let name = random.below(u64::from(names)) as usize;
        let got = free[name] + random.below(50);
        let call = got - random.below(400).min(got);
        let end = got + random.within(1, 100);
        free[name] = end;
        fences[name] += random.within(1, 4);
        let waited = random.one_in(2);
        let hold = Hold {
            name: name as u32,
            who: random.below(64) as u32,
            op,
            weight: 1,
            capacity: 1,
            owner: 0,
            answer: Answer::Granted,
            waits: true,
            several: false,
            told_held: true,
            asked: true,
            hit: false,
            call,
            queued: if waited { got } else { NEVER },
            got,
            end,
            free: end + random.below(20),
            fence: fences[name],
        };
        if random.one_in(8) {
            let (t, name, by, fence) = (got, name as u32, hold.who, hold.fence);
            history.effects.push(Effect {
                t,
                name,
                by,
                fence,
                accepted: true,
            });
        }
        history.holds.push(hold);
    }
    history
}
