//! Durations as people write them: `700ms`, `2s`, `1h30m`.

use std::time::Duration;

use jiff::SignedDuration;

/// A duration that may be zero.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = |what: &str| format!("{what}; write it like 700ms, 2s, 1m or 1h30m");
    if text.parse::<f64>().is_ok() {
        return Err(wrong("a duration needs a unit"));
    }
    let duration: SignedDuration = text.parse().map_err(|_| wrong("this is not a duration"))?;
    Duration::try_from(duration).map_err(|_| wrong("a duration is not negative"))
}

/// A duration above zero.
pub(crate) fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("a lease of 0 ends at once; write a longer one, like 30s".to_owned()),
        lease => Ok(lease),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("700ms", 700),
            ("2s", 2_000),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_with_an_example() {
        for text in [
            "",
            "2",
            "1.5",
            "soon",
            "-2s",
            "2s ago",
            "99999999999999999999s",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("1h30m"), "{text}: {error}");
        }
        assert!(parse("2").unwrap_err().contains("unit"));
        assert!(parse("-2s").unwrap_err().contains("negative"));
        assert!(parse_lease("0ms").is_err());
    }
}
