//! The terminal, lent to the child.
//!
//! The child has a process group of its own, so that a loss can stop all of it. On a terminal that group has to be
//! the foreground group: else the child's first read stops it, and ^C would not reach it.

use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, kill_process_group};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// The terminal on stdin, which this process had in the foreground. Taken back on drop.
#[derive(Debug)]
pub(crate) struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// None if stdin is no terminal, or is somebody else's at the moment (a job in the background).
    pub(crate) fn in_foreground() -> Option<Self> {
        let ours = getpgrp();
        let there = isatty(stdin()) && tcgetpgrp(stdin()) == Ok(ours);
        there.then_some(Self { ours })
    }

    /// Suspends this job like the child that was just stopped (^Z), and goes on with it when the shell says so.
    pub(crate) fn suspend(&self, child: Pid) {
        self.take_back();
        // Returns when we are continued; at once where nobody could continue us (no shell above).
        let _ = kill_current_process_group(Signal::TSTP);
        self.resume(child);
    }

    /// We were continued: in the foreground the child gets the terminal again.
    pub(crate) fn resume(&self, child: Pid) {
        if tcgetpgrp(stdin()) == Ok(self.ours) {
            let _ = hand_to(child);
        }
        let _ = kill_process_group(child, Signal::CONT);
    }

    fn take_back(&self) {
        let _ = hand_to(self.ours);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Makes a process group the foreground one. System calls only: also called between fork and exec.
pub(crate) fn hand_to(group: Pid) -> rustix::io::Result<()> {
    sys::without_ttou(|| tcsetpgrp(stdin(), group))
}
