//! Arguments and answers of the script, beside those of the line.

use std::collections::BTreeMap;

use leasehold::engine::{ClaimId, SessionId, Standing};
use leasehold::line::{Ask, Change, Refusal, What};

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

fn claim_text(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

/// The operation, the mark and the arguments.
pub(crate) fn word_list<const N: usize>(what: &str, words: [String; N]) -> Vec<Vec<u8>> {
    let first = [what.into(), b"m".to_vec()];
    first
        .into_iter()
        .chain(words.map(String::into_bytes))
        .collect()
}

/// A claim in one piece, as the engine sends it.
pub(crate) fn asked(ask: &Ask) -> Vec<u8> {
    let numbers = [
        ask.lease as f64,
        f64::from(ask.mode.weight()),
        f64::from(ask.mode.capacity()),
    ];
    let numbers = numbers.map(f64::to_le_bytes);
    [
        claim_text(ask.id).as_bytes(),
        b"\0",
        numbers.as_flattened(),
        session_text(ask.session).as_bytes(),
        b"\0who",
    ]
    .concat()
}

/// How many milliseconds the engine keeps the string of a claim.
pub(crate) fn kept(lease: u64) -> u64 {
    let need = lease.max(257);
    (need + need.max(5_000_000)).div_ceil(1_000) + 1
}

/// The release of a claim that was alone.
pub(crate) fn free(id: ClaimId, since: u64, lease: u64, used: u32) -> Vec<Vec<u8>> {
    let begin = format!(
        "{} {} {}",
        since / 1_000_000,
        since % 1_000_000,
        claim_text(id)
    );
    let spent = since + u64::from(used.clamp(1, 256));
    let numbers = [spent, since + lease].map(|micros| (micros as f64).to_le_bytes());
    let mut words = word_list("free", [begin]);
    words.push(numbers.as_flattened().to_vec());
    words
}

pub(crate) fn claimed(answer: Result<Standing, Refusal>) -> Vec<String> {
    let words = |words: &[&dyn ToString]| words.iter().map(|word| word.to_string()).collect();
    match answer {
        Ok(Standing::Held(held)) => words(&[&"held", &held.fence, &u8::from(held.wanted)]),
        Ok(Standing::Waiting { ahead, look_again }) => {
            words(&[&"waiting", &ahead, &look_again.as_micros()])
        }
        Ok(Standing::Busy) => words(&[&"busy"]),
        Ok(_) => words(&[&"gone"]),
        Err(Refusal::Weight) => words(&[&"weight"]),
        Err(Refusal::Fences) => words(&[&"fences"]),
        Err(Refusal::Full) => panic!("few claims are no full line"),
        Err(Refusal::Capacity(capacity)) => words(&[&"capacity", &capacity]),
    }
}

pub(crate) fn evicted(before: &[leasehold::line::Place], changes: &[Change]) -> Vec<String> {
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
        place.fence.or(swept).expect("it held").to_string()
    });
    std::iter::once("evicted".to_owned())
        .chain(fences)
        .collect()
}

/// The messages to each process, in order.
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

pub(crate) fn kind(answer: &[String]) -> &'static str {
    let known = [
        "held", "waiting", "busy", "gone", "weight", "capacity", "released", "evicted",
    ];
    known
        .into_iter()
        .find(|known| *known == answer[0])
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
