//! One parser, named by `LEASEHOLD_PARSER`, with inputs that libFuzzer makes.

#![no_main]

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static PARSER: OnceLock<String> = OnceLock::new();
    let parser = PARSER.get_or_init(|| std::env::var("LEASEHOLD_PARSER").expect("a parser's name"));
    leasehold::fuzz::guided::parse(parser, input);
});
