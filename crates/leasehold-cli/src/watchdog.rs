//! A process that kills the child's whole group when the runner can no longer do it.
//!
//! The parent-death signal reaches the child alone, not its children, and a runner that is stopped (SIGSTOP, ^Z)
//! stops nothing at all while its lease runs out. So before the child starts, a second process is forked. It holds
//! the read end of a pipe and hears on it which group to kill, and until when the lock is held. It kills the group
//! - when the write end closes without a goodbye: the runner died;
//! - when the deadline passes and no later one was told: the runner stands still, and its lease is over.
//!
//! It inherits the session that holds the lock. Where the kernel ends a session with its last process (`file:`), the
//! lock of a killed runner passes on only after the group was killed.
//!
//! It was forked without exec from a process that may have had other threads: it makes system calls, nothing else.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use leasehold::engine::Clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group, setsid};
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::group::{self, Left};
use crate::sys;

/// The runner's end.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pipe: PipeWriter,
}

/// A message of the runner, in one write that the pipe keeps whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The group to kill. Said by the child itself, before it becomes the command.
    Group(Pid),
    /// The lock is held until then, in microseconds of `CLOCK_BOOTTIME`.
    Until(u64),
    /// There is nothing to kill any more.
    Done,
}

type Bytes = [u8; 9];

impl Word {
    fn bytes(self) -> Bytes {
        let (tag, number) = match self {
            Self::Group(pid) => (b'g', u64::from(pid.as_raw_nonzero().get().unsigned_abs())),
            Self::Until(until) => (b'u', until),
            Self::Done => (b'd', 0),
        };
        let mut bytes = [tag; 9];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    fn of(bytes: Bytes) -> Option<Self> {
        let [tag, number @ ..] = bytes;
        let number = u64::from_ne_bytes(number);
        match tag {
            b'g' => i32::try_from(number)
                .ok()
                .and_then(Pid::from_raw)
                .map(Self::Group),
            b'u' => Some(Self::Until(number)),
            b'd' => Some(Self::Done),
            _ => None,
        }
    }
}

impl Watchdog {
    /// Forks it. The lock is held for this long from now.
    pub(crate) fn start(remaining: Duration) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let inherited = inherited();
        let mut pipe = Some(writer);
        sys::fork(|| {
            // Else it would wait for its own goodbye.
            drop(pipe.take());
            let _ = setsid();
            let _ = rustix::thread::set_name(c"leasehold-watch");
            // A caller that reads our stdout, or another pipe it gave us, to its end does not wait for us.
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
            sys::close_inherited(&inherited);
            watch(&reader, &timer);
        })?;
        let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
        let watchdog = Self { pipe };
        watchdog.held_for(remaining);
        Ok(watchdog)
    }

    /// The lock is held for this long from now.
    pub(crate) fn held_for(&self, remaining: Duration) {
        let remaining = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        self.say(Word::Until(Clock::boot().now().saturating_add(remaining)));
    }

    /// How the child names its group before it becomes the command: from its first step on it cannot be missed.
    pub(crate) fn introduction(&self) -> io::Result<impl Fn(Pid) -> io::Result<()> + use<>> {
        let pipe = self.pipe.try_clone()?;
        Ok(move |child| (&pipe).write_all(&Word::Group(child).bytes()))
    }

    /// The group is gone, or may run on without the lock.
    pub(crate) fn done(self) {
        self.say(Word::Done);
    }

    /// A watchdog that was killed does not hear it; then the parent-death signal is all there is.
    fn say(&self, word: Word) {
        let _ = (&self.pipe).write_all(&word.bytes());
    }
}

/// Descriptors that our caller left open for us. Ours are all closed on exec, and the session's must stay open here.
fn inherited() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let fds = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    fds.filter(|fd| *fd > 2 && !sys::closes_on_exec(*fd))
        .collect()
}

/// Until the runner says goodbye or is gone.
fn watch(pipe: &PipeReader, timer: &OwnedFd) {
    let (mut group, mut until) = (None, u64::MAX);
    loop {
        let mut ready = [
            PollFd::new(pipe, PollFlags::IN),
            PollFd::new(timer, PollFlags::IN),
        ];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        // The pipe first: a new deadline that arrived together with the old one's end counts.
        if ready[0].revents().is_empty() {
            kill(group);
            // Once is enough for this group and this deadline.
            arm(timer, u64::MAX);
            continue;
        }
        let mut bytes = Bytes::default();
        match (&*pipe).read_exact(&mut bytes).ok().and(Word::of(bytes)) {
            Some(Word::Group(pid)) => group = Some(pid),
            Some(Word::Until(later)) => until = later,
            Some(Word::Done) => return,
            None => {
                kill(group);
                return wait_until_gone(group);
            }
        }
        arm(timer, until);
    }
}

/// Rings at that moment, at once if it has passed. On the clock that runs on in suspend, unlike a poll's timeout.
fn arm(timer: &OwnedFd, until: u64) {
    let it_value = match until {
        u64::MAX => Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        until => Timespec {
            tv_sec: i64::try_from(until / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: (until % 1_000_000 * 1_000) as _,
        },
    };
    let it_interval = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let times = Itimerspec {
        it_interval,
        it_value,
    };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &times);
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Until no process of the group can take another step: only then may the session end, and the lock pass on. A zombie
/// takes none, and its new parent may leave it lying for a while. For at most a second: a process that the kernel
/// cannot end must not keep the lock for ever.
fn wait_until_gone(group: Option<Pid>) {
    let Some(group) = group else { return };
    for _ in 0..1_000 {
        if group::left(group) == Left::Nothing {
            return;
        }
        let milli = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        if let NanosleepRelativeResult::Err(_) = nanosleep(&milli) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_pipe() {
        let pid = Pid::from_raw(4_194_303).unwrap();
        for word in [Word::Group(pid), Word::Until(u64::MAX - 1), Word::Done] {
            assert_eq!(Word::of(word.bytes()), Some(word));
        }
        assert_eq!(Word::of([0; 9]), None);
    }
}
