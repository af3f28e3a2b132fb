//! The whole contract on the memory engine.
#![cfg(feature = "conformance")]

use leasehold::conformance::Subject;
use leasehold::engine::{Clock, Memory};

leasehold::conformance_tests!(Subject::new(Memory::new(Clock::boot())));
