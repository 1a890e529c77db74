"""The examples of the documentation, each run."""

import asyncio
import contextlib
import pathlib
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio
from apscheduler.schedulers.background import BackgroundScheduler
from celery import Celery
from celery.contrib.testing.worker import start_worker
from redlock import Redlock

import redlatch
import redlatch_client as rc
from redlatch_client.jobs import once
from servers import await_until

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import after
import before
import deploy
import gpu
import leader
import limits
import orders
import port
import report
import stock


def test_stock(namespace, locks, capsys):
    written = []
    assert stock.restock(locks, ["a", "b"], lambda *what: written.append(what))
    assert [article for article, _ in written] == ["a", "b"] and written[0][1] == written[1][1] > 0
    namespace.clock.freeze()
    with locks.lock("lock:stock", meta={"reason": "stocktaking"}) as held, ThreadPoolExecutor() as pool:
        refused = pool.submit(stock.restock, locks, ["a"], lambda *what: written.append(what))
        await_until(lambda: locks.locked_by("lock:stock").waiters)
        namespace.clock.advance(5.001)
        assert refused.result(60) is False
    said = capsys.readouterr().out
    assert "stocktaking" in said and f"redlatch break lock:stock --token {held.token}" in said
    assert len(written) == 2


def test_before_and_after_take_the_same_lock(server, namespace, locks):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(server.namespace()) for _ in range(5)]
        written = []
        many = Redlock([each.kwargs for each in servers], retry_count=1)
        assert before.restock(many, ["shirts"], written.append) and written == ["shirts"]
        taken = [redis.Redis(**each.kwargs).set("lock:stock", "other", nx=True) for each in servers[:3]]
        assert taken == [True] * 3 and not before.restock(many, ["shirts"], written.append)
    # One of one is a majority, so the old program runs on the new server without a change.
    one = Redlock([namespace.kwargs], retry_count=1)
    tokens = []

    def write(article, token):
        tokens.append(token)
        assert not before.restock(one, [article], written.append)

    assert after.restock(locks, ["shirts", "shoes"], write) and tokens[0] == tokens[1] > 0
    namespace.clock.freeze()
    with ThreadPoolExecutor() as pool:

        def write_meanwhile(article):
            refused = pool.submit(after.restock, locks, [article], write)
            await_until(lambda: locks.locked_by("lock:stock").waiters)
            namespace.clock.advance(5.001)
            assert refused.result(60) is False

        assert before.restock(one, ["shirts"], write_meanwhile)
    assert len(tokens) == 2 and len(written) == 1


def test_leader(namespace, capsys):
    async def main():
        client, other = redis.asyncio.Redis(**namespace.kwargs), redis.asyncio.Redis(**namespace.kwargs)
        tokens = asyncio.Queue()

        async def work(token):
            await tokens.put(token)
            await asyncio.Event().wait()

        leading = asyncio.create_task(leader.lead_forever(client, work))
        first = await tokens.get()
        assert await other.execute_command("LOCK.BREAK", "lock:leader", "TOKEN", first, "REASON", "drained") == 1
        assert await tokens.get() > first
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
        await client.aclose()
        await other.aclose()

    asyncio.run(main())
    assert "lock:leader is lost" in capsys.readouterr().out


def test_gpu(locks, tmp_path):
    says = [sys.executable, "-c", "import os, sys; open(sys.argv[1], 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])", str(tmp_path / "gpu")]
    with locks.lock("gpu:0"):
        gpu.run_on_a_gpu(locks, says)
    assert (tmp_path / "gpu").read_text() == "1"
    assert locks.locked_by("gpu:1") is None


def test_port(locks):
    ports = []
    port.serve(locks, lambda first: port.serve(locks, lambda second: ports.extend([first, second])))
    assert ports == [5173, 5174]
    held = [locks.any_of(port.PORTS).acquire() for _ in port.PORTS]
    with pytest.raises(rc.LockHeld, match="port:5173 is held"):
        port.serve(locks, ports.append)
    assert {each.key for each in held} == set(port.PORTS) and len(ports) == 2


def test_limits(namespace, locks):
    seen = []
    limits.run_for(locks, "acme", lambda: limits.run_for(locks, "acme", lambda: seen.append(locks.locked_by("total").holders)))
    assert seen == [2] and locks.locked_by("total") is None
    namespace.clock.freeze()
    with locks.lock("tenant:acme", permits=(2, 2), lease=600), ThreadPoolExecutor() as pool:
        limits.run_for(locks, "bolt", lambda: seen.append("bolt"))
        refused = pool.submit(limits.run_for, locks, "acme", lambda: seen.append("acme"))
        await_until(lambda: locks.locked_by("tenant:acme").waiters)
        namespace.clock.advance(60.001)
        with pytest.raises(rc.LockHeld):
            refused.result(60)
    assert seen == [2, "bolt"]


def test_deploy(locks, capsys):
    stopping = {"version-1": threading.Event(), "version-2": threading.Event()}
    led = []

    def work(name, token):
        led.append((name, token))
        if name == "version-1":
            # It is told to stop once its successor waits.
            await_until(lambda: locks.locked_by("lock:leader").waiters)
        stopping[name].set()

    with ThreadPoolExecutor() as pool:
        begun = pool.submit(deploy.lead, locks, "version-1", "version-2", stopping["version-1"], work)
        await_until(lambda: led)
        pool.submit(deploy.lead, locks, "version-2", "version-3", stopping["version-2"], work).result(60)
        begun.result(60)
    assert [name for name, _ in led] == ["version-1", "version-2"] and led[0][1] < led[1][1]
    assert locks.locked_by("lock:leader") is None and "NOLEASE" in capsys.readouterr().out


def test_orders(locks):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        fence = subprocess.run([redlatch.find_binary(), "fence", "sql", "sqlite"], capture_output=True, text=True, check=True)
        database.executescript(fence.stdout + "CREATE TABLE orders (id, state); INSERT INTO orders VALUES (7, 'open'), (8, 'open');")
        orders.close_order(locks, database, 7)
        database.execute("UPDATE redlatch_fence SET token = token + 1000000")
        database.commit()
        with pytest.raises(rc.StaleToken):
            orders.close_order(locks, database, 8)
        assert database.execute("SELECT state FROM orders ORDER BY id").fetchall() == [("closed",), ("open",)]


def test_report(namespace, locks):
    runs = []
    schedulers = [BackgroundScheduler() for _ in range(3)]
    for scheduler in schedulers:
        report.schedule(scheduler, locks, lambda: runs.append(1))
        [job] = scheduler.get_jobs()
        scheduler.add_job(job.func, "date", id="now")
        scheduler.start()
    for scheduler in schedulers:
        await_until(lambda: not scheduler.get_job("now"))
        scheduler.shutdown(wait=True)
    assert runs == [1]
    assert locks.locked_by("lock:report").left > 0


def test_a_task_that_two_beats_send_runs_once(locks):
    app = Celery(broker="memory://", backend="cache+memory://")

    @app.task
    @once(locks, "lock:report", at_least=50)
    def make_report(of):
        return f"report of {of}"

    with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, shutdown_timeout=60):
        sent = [make_report.delay("today") for _ in range(2)]
        assert sorted(str(each.get(timeout=60)) for each in sent) == ["None", "report of today"]


def test_a_job_that_fails_is_told_and_ends_the_lock(locks):
    @once(locks, "lock:report")
    def fails():
        raise KeyError("why")

    for _ in range(2):
        with pytest.raises(KeyError, match="why"):
            fails()
    assert locks.locked_by("lock:report") is None
