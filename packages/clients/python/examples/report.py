"""A job of APScheduler that runs in one of several processes."""

from redlatch_client import Locks
from redlatch_client.jobs import once


def schedule(scheduler, locks: Locks, report) -> None:
    # For a job that starts once a minute: nobody starts it again in this minute, not even with a clock that is behind.
    job = once(locks, "lock:report", at_least=50)(report)
    scheduler.add_job(job, "cron", second=0)
