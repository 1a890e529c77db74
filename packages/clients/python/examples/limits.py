"""A job that counts for two limits: two jobs of a tenant at a time, and a hundred of all."""

from redlatch_client import Locks


def run_for(locks: Locks, tenant: str, job) -> None:
    limits = {f"tenant:{tenant}": (1, 2), "total": (1, 100)}
    with locks.all(limits, modes=limits, wait=60):
        job()
