//! What a store holds, where another program may have written it.

use super::{barrier, latch, once};

#[cfg_attr(test, test)]
pub(crate) fn inputs_that_no_program_of_ours_wrote() {
    let fuzz = crate::fuzz::Fuzz {
        name: "stored",
        words: &[
            b"\n",
            b" ",
            b":",
            b" of ",
            b"begun ",
            b"done ",
            b"value ",
            b"nothing ",
            b"null",
            b"[[[[",
        ],
    };
    fuzz.run(&[], |input| {
        let text = String::from_utf8_lossy(input);
        #[cfg(feature = "cached")]
        let cached = super::cached::decode::<serde_json::Value>(input);
        #[cfg(not(feature = "cached"))]
        let cached: Option<(Option<()>, std::time::Duration)> = None;
        (
            barrier::is_read(&text),
            latch::numbers(input).is_some(),
            once::noted(input).map(|(done, by, result)| (done, by.is_empty(), result.is_empty())),
            cached.map(|(value, ttl)| (value.is_some(), ttl.is_zero())),
            text.split([' ', ':', '\n']).count().min(9),
        )
    });
}
