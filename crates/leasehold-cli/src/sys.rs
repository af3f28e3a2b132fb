//! The only module with `unsafe`: system calls that no safe interface wraps.
//!
//! Forking without exec, and running code between fork and exec, is `unsafe` because in the new process only the
//! forking thread exists: a lock that another thread held stays locked for ever. So the code there makes system
//! calls and nothing else: no allocation, no printing, no panic.
#![expect(
    unsafe_code,
    reason = "fork, pre_exec, signal masks and dispositions have no safe interface"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// Forks. The new process runs `body`, which makes only system calls, and ends; all signals that can be blocked are.
pub(crate) fn fork(body: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the new process only runs `body`, system calls by contract, and `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _ = mask(libc::SIG_BLOCK, &every_signal());
            body();
            // SAFETY: always sound; skips what `exit` would run a second time.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(()),
    }
}

/// Runs `hook`, which makes only system calls, in the child between fork and exec.
pub(crate) fn before_exec(
    command: &mut Command,
    hook: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: `hook` makes only system calls by contract.
    let _ = unsafe { command.pre_exec(hook) };
}

/// Closes descriptors that no value of this process owns: those it inherited from its caller.
pub(crate) fn close_inherited(fds: &[RawFd]) {
    for fd in fds {
        // SAFETY: nothing here was made from these numbers; they were open before this program began.
        unsafe { rustix::io::close(*fd) };
    }
}

/// Whether exec closes a descriptor; also if it is none.
pub(crate) fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: only asks the kernel, by number.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags < 0 || flags & libc::FD_CLOEXEC != 0
}

/// Whether a signal is ignored, as `nohup` and background jobs of a script inherit it.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: changes nothing and writes to `action`, which is valid as zeroes too.
    let action = unsafe {
        let _ = libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Does something a background process is stopped for, such as taking the terminal.
pub(crate) fn without_ttou<T>(act: impl FnOnce() -> T) -> T {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` makes a valid set of whatever was there.
    let set = unsafe {
        let _ = libc::sigemptyset(set.as_mut_ptr());
        let _ = libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        set.assume_init()
    };
    let before = mask(libc::SIG_BLOCK, &set);
    let done = act();
    let _ = mask(libc::SIG_SETMASK, &before);
    done
}

fn every_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigfillset` makes a valid set of whatever was there.
    unsafe {
        let _ = libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Changes this thread's signal mask; returns the mask before.
fn mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: reads `set`, writes `before`; zeroes are an empty set should it fail.
    unsafe {
        let _ = libc::pthread_sigmask(how, set, before.as_mut_ptr());
        before.assume_init()
    }
}
