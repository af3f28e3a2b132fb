//! Durations as the command reads them too: `700ms`, `2s`, `1h30m`.

use syn::{Error, LitStr};

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
const SHORTEST_LEASE: u64 = 20;
const LONGEST_LEASE: u64 = 24 * 3_600_000;

/// The milliseconds of a `wait`.
pub(crate) fn wait(text: &LitStr) -> syn::Result<u64> {
    match millis(text)? {
        0 => Err(Error::new(
            text.span(),
            "a wait of 0 does not wait: write `try` instead",
        )),
        wait => Ok(wait),
    }
}

/// The milliseconds of a `lease`.
pub(crate) fn lease(text: &LitStr) -> syn::Result<u64> {
    let lease = millis(text)?;
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(lease);
    }
    Err(Error::new(text.span(), "a lease is from 20ms to 24h"))
}

fn millis(text: &LitStr) -> syn::Result<u64> {
    let value = text.value();
    read(&value).ok_or_else(|| {
        let what = format!("{value:?} is no duration: write it like 700ms, 2s, 1m or 1h30m");
        Error::new(text.span(), what)
    })
}

fn read(mut text: &str) -> Option<u64> {
    let mut sum = 0_u64;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, rest) = text.split_at(digits);
        let end = rest.find(|c: char| c.is_ascii_digit());
        let (unit, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let (_, each) = UNITS.iter().find(|(known, _)| *known == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*each)?)?;
        text = rest;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_command_reads() {
        for (text, expected) in [
            ("700ms", Some(700)),
            ("2s", Some(2_000)),
            ("1h30m", Some(5_400_000)),
            ("1m1s1ms", Some(61_001)),
            ("", None),
            ("2", None),
            ("s", None),
            ("2 s", None),
            ("-2s", None),
            ("2d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
