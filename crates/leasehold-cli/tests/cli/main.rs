//! The real command, as processes, on directories of their own.

mod common;
mod loss;
mod nested;
mod run;
mod status;
mod tty;
mod usage;
