//! `leasehold-lab`.
fn main() {}
