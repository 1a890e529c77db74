"""redis-cli at a terminal: its prompt, its hints, its help. Types only when it sees a prompt."""

import os
import pty
import re
import select
import struct
import sys
import termios
import time
from fcntl import ioctl

HOST = os.environ["REDLATCH_HOST"]
PORT = os.environ["REDLATCH_PORT"]
PROMPT_TIME_MAX = 10


class Terminal:
    """redis-cli on a pseudo terminal of its own."""

    def __init__(self):
        pid, self.screen = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.environ["HOME"] = os.getcwd()
            # redis-cli asks a terminal without a size where its cursor is, and nobody here would answer.
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
            os.execvp("redis-cli", ["redis-cli", "-h", HOST, "-p", PORT])
        self.pid = pid
        self.seen = ""

    def until(self, pattern):
        """Everything shown up to a match of `pattern` at the end; ends the program if it does not come."""
        deadline = time.monotonic() + PROMPT_TIME_MAX
        while not re.search(pattern, plain(self.seen)):
            ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"FAILED nothing like {pattern!r} in {plain(self.seen)!r}")
            self.seen += os.read(self.screen, 65_536).decode()
        shown, self.seen = plain(self.seen), ""
        return shown

    def types(self, line, prompt):
        """Types `line` and returns what is shown until the next prompt."""
        os.write(self.screen, line.encode() + b"\r")
        # The line is drawn anew at each key; the reply begins after the line break that ends it.
        return self.until(rf"(?s)\n.*{prompt}$")


def plain(shown):
    """Text without the codes for cursor and colours; a redrawn line counts once, as it was last."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    lines = re.sub(r"\r+\n", "\n", text).split("\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in lines)


def check(name, truth, seen):
    if not truth:
        sys.exit(f"FAILED {name}: {seen!r}")
    print(f"ok {name}", flush=True)


address = re.escape(f"{HOST}:{PORT}")
terminal = Terminal()
terminal.until(rf"{address}> $")
print("ok the prompt", flush=True)

for name, line, reply, prompt in [
    ("acquire", "SET stock first NX PX 30000", r"\nOK\n", f"{address}> "),
    ("contended acquire is refused", "SET stock second NX PX 30000", r"\n\(nil\)\n", f"{address}> "),
    ("what is left", "PTTL stock", r"\n\(integer\) \d{5}\n", f"{address}> "),
    ("an error", "NOSUCHCOMMAND", r"\n\(error\) ERR unknown command", f"{address}> "),
    ("the prompt shows the database", "SELECT 2", r"\nOK\n", rf"{address}\[2\]> "),
    ("the prompt shows a transaction", "MULTI", r"\nOK\n", rf"{address}\[2\]\(TX\)> "),
    ("a command is queued", "INCR fence", r"\nQUEUED\n", rf"{address}\[2\]\(TX\)> "),
    ("and executed", "EXEC", r"\n1\) \(integer\) 1\n", rf"{address}\[2\]> "),
    ("help", "HELP SET", r"\n +summary: ", rf"{address}\[2\]> "),
    ("INFO", "INFO server", r"\nredis_version:\d+\.", rf"{address}\[2\]> "),
    ("RESP3", "HELLO 3", r'"?proto"? => \(integer\) 3', rf"{address}\[2\]> "),
]:
    shown = terminal.types(line, prompt)
    check(name, re.search(reply, shown), shown)

os.write(terminal.screen, b"QUIT\r")
_, status = os.waitpid(terminal.pid, 0)
check("QUIT ends it", os.waitstatus_to_exitcode(status) == 0, status)
print("done", flush=True)
