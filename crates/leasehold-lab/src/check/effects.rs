//! Effects that the resource took, in the order in which it stamped them.

use super::verdict::{Promise, Verdict};
use crate::history::{Effect, History};

pub(super) fn judge(history: &History, verdict: &mut Verdict) {
    let mut effects = history.effects.clone();
    effects.sort_by_key(|effect| (effect.name, effect.t));
    for of_name in effects.chunk_by(|a, b| a.name == b.name) {
        let accepted: Vec<&Effect> = of_name.iter().filter(|effect| effect.accepted).collect();
        verdict.stats.accepted += accepted.len() as u64;
        verdict.stats.refused += (of_name.len() - accepted.len()) as u64;
        let mut largest: Option<&Effect> = None;
        for effect in &accepted {
            let stale = largest.filter(|l| {
                (effect.fence, effect.by) < (l.fence, effect.by)
                    || (effect.fence == l.fence && effect.by != l.by)
            });
            if let Some(largest) = stale {
                verdict.broke(Promise::EffectOrder, effect.name, effect.t, |_| {
                    format!(
                        "fence {} was accepted after fence {} of another holder",
                        effect.fence, largest.fence
                    )
                });
            }
            if largest.is_none_or(|largest| effect.fence > largest.fence) {
                largest = Some(effect);
            }
        }
    }
    for (name, count) in &history.counted {
        let accepted = history
            .effects
            .iter()
            .filter(|effect| effect.accepted && effect.name == *name)
            .count() as u64;
        if accepted != *count {
            verdict.broke(Promise::EffectOrder, *name, 0, |_| {
                format!("{accepted} effects were accepted and the resource counts {count}: updates were lost")
            });
        }
    }
}
