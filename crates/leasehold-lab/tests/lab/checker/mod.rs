//! The checker against a search through every order, on a million small histories; and what must not change a verdict.

mod against_search;
mod draw;
mod metamorphic;
mod naive;
mod rules;
mod search;
mod waiting;
