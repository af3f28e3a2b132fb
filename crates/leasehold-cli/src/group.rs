//! The processes of a group that are left. System calls only: the watchdog, a fork without exec, asks too.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, RawDir, fstat, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// The processes of a group that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// No process of it can take another step. Zombies may wait for their parent.
    Nothing,
    /// This process runs, as this user.
    Process { pid: u32, uid: u32 },
    /// It is there, and `/proc` does not show it.
    Hidden,
}

/// Looks at every process. A group that a SIGKILL reached grows no more: fork fails while that signal is pending.
pub(crate) fn left(group: Pid) -> Left {
    let alive = test_kill_process_group(group);
    if alive == Err(Errno::SRCH) {
        return Left::Nothing;
    }
    let group = group.as_raw_nonzero().get().unsigned_abs();
    match scan(group) {
        // Of a group that cannot even be asked, what `/proc` does not show may be hidden.
        Ok(Left::Nothing) if alive.is_err() => Left::Hidden,
        Ok(left) => left,
        Err(_) => Left::Hidden,
    }
}

fn scan(group: u32) -> Result<Left, Errno> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = open(c"/proc", how, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&proc, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(pid) = number(name.to_bytes())
            && let Ok(Some(uid)) = runs_in(&proc, name, group)
        {
            return Ok(Left::Process { pid, uid });
        }
    }
    Ok(Left::Nothing)
}

/// The user of a process, if it runs and is in this group.
fn runs_in(proc: &OwnedFd, name: &CStr, group: u32) -> Result<Option<u32>, Errno> {
    let how = OFlags::RDONLY | OFlags::CLOEXEC;
    let process = openat(proc, name, how | OFlags::DIRECTORY, Mode::empty())?;
    let stat = openat(&process, c"stat", how, Mode::empty())?;
    let mut bytes = [0; 512];
    let read = rustix::io::read(&stat, &mut bytes)?;
    match runs(&bytes[..read], group) {
        true => Ok(Some(fstat(&process)?.st_uid)),
        false => Ok(None),
    }
}

/// Whether the text of `/proc/PID/stat` is that of a process of this group that is not over.
fn runs(stat: &[u8], group: u32) -> bool {
    // The name before it may have spaces and parentheses of its own.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else {
        return false;
    };
    let mut fields = stat[end + 1..].split(|byte| *byte == b' ').skip(1);
    let state = fields.next();
    let found = fields.nth(1).and_then(number);
    let threads = fields.nth(14).and_then(number);
    // A first thread that has ended is a zombie while others of its process still run.
    let over = matches!(state, Some(b"Z" | b"X")) && threads.is_none_or(|threads| threads <= 1);
    found == Some(group) && !over
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        let stat = |state: &str, group: u32, threads: u32| {
            format!(
                "77 (a ) Z 1) {state} 1 {group} 77 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 {threads} 0 1"
            )
        };
        for (state, threads, expected) in [
            ("R", 1, true),
            ("D", 1, true),
            ("T", 1, true),
            ("Z", 2, true),
            ("Z", 1, false),
            ("X", 0, false),
        ] {
            let text = stat(state, 42, threads);
            assert_eq!(runs(text.as_bytes(), 42), expected, "{text}");
            assert!(!runs(text.as_bytes(), 43), "another group");
        }
        assert!(!runs(b"", 42));
    }

    #[test]
    fn finds_a_process_that_runs_and_none_in_a_zombie() {
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = child.id();
        let group = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(left(group), Left::Process { pid, uid });
        child.kill().unwrap();
        // Not waited for: it stays a zombie.
        let began = leasehold::engine::Clock::boot().now();
        while left(group) != Left::Nothing {
            let now = leasehold::engine::Clock::boot().now();
            assert!(now - began < 10_000_000, "{:?}", left(group));
        }
        assert!(test_kill_process_group(group).is_ok(), "a zombie is left");
        let _ = child.wait().unwrap();
        assert_eq!(left(group), Left::Nothing);
    }
}
