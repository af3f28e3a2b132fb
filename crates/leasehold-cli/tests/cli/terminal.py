"""Drives a shell on a pseudo-terminal: waits for what it prints, types what it is told to."""

import os
import pty
import select
import sys
import time


def main():
    # Arguments: what to wait for, what to type then, and so on in turn.
    steps = list(zip(sys.argv[1::2], sys.argv[2::2]))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "ready> "
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    seen = b""
    for wanted, typed in steps:
        end = time.monotonic() + 20
        while wanted.encode() not in seen:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            try:
                more = os.read(terminal, 4096) if ready else b""
            except OSError:
                more = b""
            if not more:
                sys.exit(f"waited for {wanted!r}; last: {seen!r}")
            seen += more
        seen = seen.split(wanted.encode(), 1)[1]
        os.write(terminal, typed.encode().decode("unicode_escape").encode())
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


main()
