//! Values as parts of names.

use std::fmt::{self, Write};

use crate::name::Name;

impl Name {
    /// A value as a part of a name, so that two different values never make the same name.
    ///
    /// ASCII letters and digits, `-`, `_`, `.` and all characters beyond ASCII stay as they are. Every other character (`:`, `/`,
    /// `%`, a space …) and every control character is written byte by byte as `%` and two upper-case hex digits of its UTF-8. So
    /// the value can be read back, and between two parts any other ASCII character keeps them apart. This never changes: programs
    /// of different versions, and in other languages, make the same names.
    ///
    /// The attribute `locked` (feature `macros`) writes the arguments of its names like this.
    ///
    /// ```
    /// use leasehold::Name;
    ///
    /// let name = |shop: &str, item: &str| format!("stock:{}:{}", Name::part(shop), Name::part(item));
    /// assert_eq!(name("north", "42"), "stock:north:42");
    /// assert_eq!(name("a:b", "c"), "stock:a%3Ab:c");
    /// assert_ne!(name("a:b", "c"), name("a", "b:c"));
    /// ```
    pub fn part(value: impl fmt::Display) -> String {
        let mut part = Part(String::new());
        // Neither this writer nor a value's own `Display` has a reason to fail.
        let _ = write!(part, "{value}");
        part.0
    }
}

/// Escapes what is written to it.
struct Part(String);

impl Write for Part {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let plain = c.is_ascii_alphanumeric() || "-_.".contains(c);
            if plain || (!c.is_ascii() && !c.is_control()) {
                self.0.push(c);
                continue;
            }
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                write!(self.0, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_those_of_the_documentation() {
        for (value, part) in [
            ("", ""),
            ("north-1_a.B", "north-1_a.B"),
            ("a:b/c", "a%3Ab%2Fc"),
            ("100 %", "100%20%25"),
            ("%3A", "%253A"),
            ("é🔒", "é🔒"),
            ("\n\u{7f}\u{80}\u{9f}", "%0A%7F%C2%80%C2%9F"),
            ("{}~+@", "%7B%7D%7E%2B%40"),
        ] {
            assert_eq!(Name::part(value), part, "{value:?}");
        }
        assert_eq!(Name::part(-42), "-42");
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[a%3A:/.{} \u{80}é]{0,6}"]
    }

    proptest! {
        #[test]
        fn a_part_can_be_read_back_and_fits_a_name(value in value()) {
            let part = Name::part(&value);
            prop_assert_eq!(percent_decode_str(&part).decode_utf8().unwrap(), &value[..]);
            prop_assert!(!part.contains(char::is_control));
            prop_assert!(!part.contains([':', '/', ' ', '#', '@', '{']), "{}", part);
        }

        /// Two parts with a character between them that no part has are one name for one pair.
        #[test]
        fn pairs_that_differ_make_names_that_differ(one in (value(), value()), two in (value(), value())) {
            let name = |(a, b): &(String, String)| format!("x{}-/0{}", Name::part(a), Name::part(b));
            prop_assert_eq!(one == two, name(&one) == name(&two));
        }
    }
}
