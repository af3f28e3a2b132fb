//! The one filter of everything that is printed: text of other processes must not drive this terminal.

use std::io::{self, Write};

/// Characters that move the cursor, change the direction of what follows, or are not seen at all.
fn is_odd(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    (c.is_control() && c != '\n' && c != '\t') || hidden
}

/// Text of several lines for people: each odd character is a question mark. What others wrote is in it by way of
/// [`line()`] only.
pub(crate) fn plain(text: &str) -> String {
    text.replace(is_odd, "?")
}

/// The same for text that must stay in its line and column: what others wrote begins no line of its own.
pub(crate) fn line(text: &str) -> String {
    text.replace(|c| is_odd(c) || matches!(c, '\n' | '\t'), "?")
}

/// JSON for programs: each odd character is escaped, so nothing is lost. Outside of its strings it has none.
pub(crate) fn plain_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_odd(c) {
            true => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                text.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => text.push(c),
        }
    }
    text
}

/// The beginning of a text, with a sign if something was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

/// Standard error for a program that writes text of others to it.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One event at a time, with the end of its line.
        let text = String::from_utf8_lossy(bytes);
        let text = match text.strip_suffix('\n') {
            Some(text) => line(text) + "\n",
            None => line(&text),
        };
        io::stderr().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str = "a\x1b[2J\r\u{9b}31m\u{202e}txt\u{200b}\u{2066}\u{feff}\u{7f}\0z\n\té字\u{ad}\u{3164}\u{fffa}\u{e0041}";

    #[test]
    fn nothing_that_drives_a_terminal_passes() {
        assert_eq!(plain(ODD), "a?[2J??31m?txt?????z\n\té字????");
        assert_eq!(line(ODD), "a?[2J??31m?txt?????z??é字????");
    }

    #[test]
    fn json_loses_nothing() {
        let json = serde_json::to_string(ODD).unwrap();
        let text = plain_json(&json);
        assert!(!text.contains(is_odd), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), ODD);
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut("éééé", 4), "éééé");
        assert_eq!(cut("ééééé", 4), "ééé…");
    }
}
