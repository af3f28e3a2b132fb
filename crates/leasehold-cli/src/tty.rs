//! The terminal, lent to the child.
//!
//! The child has a process group of its own, so that a loss can stop all of it. To read from the terminal, or to be
//! reached by ^C, that group has to be the foreground group. It is from the start where the terminal is all there is
//! to talk to. In a pipeline (`leasehold run … | less`) another program may need it: there it is lent when the child
//! asks, which it does by being stopped for reading in the background.

use std::fs::File;

use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, kill_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// Our controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    ours: Pid,
    /// Whether the child has it, or will have it again when we are in the foreground.
    lent: bool,
}

impl Terminal {
    /// None where there is none: services, cron.
    pub(crate) fn controlling() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty");
        Some(Self {
            tty: tty.ok()?,
            ours: getpgrp(),
            lent: false,
        })
    }

    /// The terminal, for the child to take before its first step; none if it must not.
    pub(crate) fn lend(&mut self) -> Option<File> {
        if !(isatty(stdin()) && isatty(stdout()) && self.is_ours()) {
            return None;
        }
        let tty = self.tty.try_clone().ok()?;
        self.lent = true;
        Some(tty)
    }

    /// The child was stopped: lends it the terminal if that is what it wants and we can. Else the whole job stops,
    /// and goes on when the shell says so.
    pub(crate) fn stopped(&mut self, child: Pid, by: Option<i32>) {
        let wants = [Signal::TTIN, Signal::TTOU];
        let wants = wants.into_iter().find(|signal| Some(signal.as_raw()) == by);
        if wants.is_some() && self.is_ours() {
            self.lent = true;
        } else {
            self.take_back(child);
            // Returns when we are continued; at once where no shell could continue us.
            let _ = kill_current_process_group(wants.unwrap_or(Signal::TSTP));
        }
        self.resume(child);
    }

    /// The child goes on, with the terminal if it had it and we are in the foreground.
    pub(crate) fn resume(&self, child: Pid) {
        if self.lent && self.is_ours() {
            let _ = hand(&self.tty, child);
        }
        let _ = kill_process_group(child, Signal::CONT);
    }

    /// The terminal is ours again, unless another group has it by now.
    pub(crate) fn take_back(&self, child: Pid) {
        if tcgetpgrp(&self.tty) == Ok(child) {
            let _ = hand(&self.tty, self.ours);
        }
    }

    /// The child took the terminal, and then could not become the command.
    pub(crate) fn reclaim(&self) {
        if self.lent {
            let _ = hand(&self.tty, self.ours);
        }
    }

    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.ours)
    }
}

/// Makes a process group the foreground one. System calls only: also called between fork and exec.
pub(crate) fn hand(tty: &File, group: Pid) -> rustix::io::Result<()> {
    sys::without_ttou(|| tcsetpgrp(tty, group))
}
