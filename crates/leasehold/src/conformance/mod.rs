//! The executable contract.
