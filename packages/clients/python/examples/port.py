"""A port for a development server: the first that none of the others has."""

from redlatch_client import Locks

PORTS = [f"port:{number}" for number in range(5173, 5200)]


def serve(locks: Locks, start) -> None:
    with locks.any_of(PORTS) as held:
        start(int(held.key.removeprefix("port:")))
