//! What the script is told and what it says, beside what the line says.

use std::collections::BTreeMap;

use leasehold::engine::{ClaimId, SessionId, Standing};
use leasehold::line::{Ask, Change, Refusal, What};
use serde_json::{Value, json};

pub(crate) fn id(who: u8) -> ClaimId {
    ClaimId::from_u128(u128::from(who) + 1)
}

/// Three sessions of two processes.
pub(crate) fn session(who: u8) -> SessionId {
    SessionId::from_u128(u128::from(who % 3))
}

fn session_text(session: SessionId) -> String {
    let number = session.as_u128();
    format!("p{}.{number:032x}", number % 2)
}

pub(crate) fn claim_text(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

pub(crate) fn claim_words(ask: &Ask) -> Vec<Value> {
    vec![
        json!("claim"),
        json!("m"),
        json!(claim_text(ask.id)),
        json!(session_text(ask.session)),
        json!(ask.mode.weight().to_string()),
        json!(ask.mode.capacity().to_string()),
        json!(ask.lease.to_string()),
        json!(u8::from(ask.waits).to_string()),
        json!("who"),
    ]
}

pub(crate) fn claimed(answer: Result<Standing, Refusal>) -> Value {
    match answer {
        Ok(Standing::Held(held)) => {
            json!(["held", held.fence.get().to_string(), u8::from(held.wanted)])
        }
        Ok(Standing::Waiting { ahead, look_again }) => {
            json!(["waiting", ahead, look_again.as_micros().to_string()])
        }
        Ok(Standing::Busy) => json!(["busy"]),
        Ok(Standing::Gone) => json!(["gone"]),
        Err(Refusal::Weight) => json!(["weight"]),
        Err(Refusal::Fences) => json!(["fences"]),
        Err(Refusal::Capacity(capacity)) => json!(["capacity", capacity]),
    }
}

pub(crate) fn evicted(before: &[leasehold::line::Place], changes: &[Change]) -> Value {
    let gone = changes.iter().filter(|change| change.what == What::Evicted);
    let granted = changes.iter().filter_map(|change| match change.what {
        What::Granted(held) => Some((change.claim, held.fence)),
        _ => None,
    });
    let granted: Vec<_> = granted.collect();
    let fences = gone.map(|change| {
        let place = before
            .iter()
            .find(|place| place.id == change.claim)
            .expect("it was there");
        let swept = granted
            .iter()
            .find(|(claim, _)| *claim == change.claim)
            .map(|(_, fence)| *fence);
        json!(place.fence.or(swept).expect("it held").get().to_string())
    });
    Value::Array(std::iter::once(json!("evicted")).chain(fences).collect())
}

/// What each process is told, in order.
pub(crate) fn messages(changes: &[Change]) -> BTreeMap<String, Vec<String>> {
    let mut messages = BTreeMap::<_, Vec<_>>::new();
    for change in changes {
        let session = session_text(change.session);
        let (letter, rest) = match change.what {
            What::Granted(held) => ("G", format!(" {} {}", held.fence, u8::from(held.wanted))),
            What::Wanted => ("W", String::new()),
            What::Expired => ("X", String::new()),
            What::Evicted => ("E", " by why".to_owned()),
        };
        let channel = format!("t:!{}", session.split('.').next().unwrap_or_default());
        let message = format!("{letter} {} {session}{rest}", claim_text(change.claim));
        messages.entry(channel).or_default().push(message);
    }
    messages
}

pub(crate) fn heard(published: &Value) -> BTreeMap<String, Vec<String>> {
    let published = published.as_array().cloned().unwrap_or_default();
    let message = |one: &Value| {
        let mut lines = one.as_str().unwrap_or_default().lines().map(str::to_owned);
        (lines.next().unwrap_or_default(), lines.collect())
    };
    published.iter().map(message).collect()
}

pub(crate) fn kind(answer: &Value) -> &'static str {
    let known = [
        "held", "waiting", "busy", "gone", "weight", "capacity", "released", "evicted",
    ];
    let word = answer[0].as_str().unwrap_or_default();
    known
        .into_iter()
        .find(|known| *known == word)
        .expect("a known answer")
}

pub(crate) fn told(change: &Change) -> &'static str {
    match change.what {
        What::Granted(_) => "told: granted",
        What::Wanted => "told: wanted",
        What::Expired => "told: expired",
        What::Evicted => "told: evicted",
    }
}
