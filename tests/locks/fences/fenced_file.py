"""A file that refuses writers whose fencing token is stale. For all processes of one machine."""

import fcntl
import os


class Stale(Exception):
    """A writer with a higher token has written."""


def write(path, data, token):
    """Replaces the file. Who reads it sees the old bytes or the new ones, never some of both."""
    if type(token) is not int or not 0 < token < 2**63:
        raise ValueError(f"{token!r} is no fencing token")
    with open(f"{path}.lock", "w") as only_one:
        fcntl.flock(only_one, fcntl.LOCK_EX)
        newest = read_token(path)
        if token < newest:
            raise Stale(f"token {token}: {newest} has written {path}")
        # First the token: if the machine fails in between, a stale writer is refused all the same.
        replace(f"{path}.token", str(token).encode())
        replace(path, data)


def read_token(path):
    try:
        with open(f"{path}.token") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def replace(path, data):
    with open(f"{path}.new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
