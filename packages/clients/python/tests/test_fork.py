"""A hold belongs to the process that took it: forks, processes of multiprocessing, copies."""

import asyncio
import copy
import multiprocessing
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback

import pytest
import redis
import redis.asyncio

import redlatch_client as rc
from redlatch_client import aio
from redlatch_client.jobs import once
from servers import await_until

#: Longer than that of `await_until`.
PATIENCE = 90
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def fork(work):
    """Starts a child that does `work`, and ends with status 0 if that raises nothing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(PATIENCE)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ends_well(child):
    return os.waitpid(child, 0)[1] == 0


def in_child(work):
    assert ends_well(fork(work))


def raised(kind, work, *arguments):
    with pytest.raises(kind) as caught:
        work(*arguments)
    return str(caught.value)


def requests(namespace, command):
    return [event for event in namespace.history(command=command) if event["kind"] == "request"]


def done(coroutine):
    """What a coroutine returns that waits for nothing: in a child the event loop of the parent does not run."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


@needs_fork
def test_a_child_takes_locks_of_its_own(locks):
    def take():
        with locks.lock("child", lease=6) as mine:
            raised(rc.LockHeld, locks.lock("parent").acquire)
            # Its threads renew.
            await_until(lambda: mine.remaining() < 4.4)
            await_until(lambda: mine.remaining() > 4.5)

    with locks.lock("parent", lease=6) as held:
        in_child(take)
        assert not held.lost.is_set()


@needs_fork
@pytest.mark.parametrize("options", [{}, {"session": True}, {"reentrant": True}, {"owner": "job-7"}])
def test_a_child_that_leaves_the_block_leaves_the_lock_to_its_parent(locks, namespace, options):
    child = 0
    try:
        with locks.lock("k", **options) as held:
            child = os.fork()
            if child:
                assert ends_well(child)
                assert locks.locked_by("k").token == held.token
                assert requests(namespace, "LOCK.RELEASE") == []
    finally:
        if child == 0:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    assert len(requests(namespace, "LOCK.RELEASE")) == 1


@needs_fork
@pytest.mark.parametrize("options", [{}, {"session": True}])
def test_a_child_cannot_change_the_hold_of_its_parent(locks, namespace, options):
    def try_to():
        assert held.release() is False
        assert held.lost.is_set() and held.lost.wait() and held.lost.reason == "forked"
        assert held.remaining() == 0
        sends = [(held.extend,), (held.leave, 1), (held.transfer_to, "job-8", 60), (held.fenced, sqlite3.connect(":memory:"))]
        for work, *arguments in [*sends, (held.raise_if_lost,)]:
            assert "k is lost: it belongs to the process that took it" in raised(rc.LockLost, work, *arguments)

    with locks.lock("k", **options) as held:
        in_child(try_to)
        assert not held.lost.is_set()
        assert locks.locked_by("k").token == held.token
    for command in ("LOCK.EXTEND", "LOCK.RELEASE"):
        # Those of the parent alone.
        assert len({event["client"] for event in requests(namespace, command)}) <= 2
    assert len(requests(namespace, "LOCK.RELEASE")) == 1


@needs_fork
def test_what_the_threads_had_locked_at_the_fork_does_not_stop_the_child(locks):
    held, is_locked, is_over = locks.lock("k").acquire(), threading.Event(), threading.Event()

    def lock_all():
        with locks._background()._changed, held._extending, held.lost._event._cond:
            is_locked.set()
            is_over.wait(PATIENCE)

    def go_on():
        assert held.release() is False and held.lost.wait(1)
        raised(rc.LockLost, held.extend)
        raised(rc.LockLost, held.leave, 1)
        raised(rc.LockLost, held.transfer_to, "job-8")
        assert locks.lock("child").acquire().release()
        locks.close()

    keeper = threading.Thread(target=lock_all)
    keeper.start()
    is_locked.wait(PATIENCE)
    try:
        in_child(go_on)
    finally:
        is_over.set()
        keeper.join()
    assert held.release()


@needs_fork
def test_the_workers_of_a_server_that_has_forked_them_exclude_each_other(locks, client):
    shared = locks.lock("k", wait=PATIENCE)

    def work():
        for _ in range(20):
            with shared:
                assert client.incr("inside") == 1
                client.decr("inside")

    with locks.lock("master", lease=6) as held:
        with shared:
            pass
        workers = [fork(work) for _ in range(4)]
        assert [ends_well(worker) for worker in workers] == [True] * 4
        assert locks.locked_by("master").token == held.token


@needs_fork
def test_threads_of_a_child_that_begin_together_keep_all_of_their_locks(locks):
    def begin():
        together, holds = threading.Barrier(8), []

        def take(number):
            together.wait()
            holds.append(locks.lock(f"k{number}", lease=6).acquire())

        threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(locks._server.holds) == 8 and len(locks._backgrounds) == 2

    with locks.lock("parent"):
        in_child(begin)


@needs_fork
def test_a_reentrant_lock_is_not_that_of_the_child(locks):
    lock = locks.lock("k", reentrant=True)

    def enter():
        raised(rc.LockHeld, lock.acquire)
        mine = locks.lock("free", reentrant=True)
        with mine, mine:
            pass

    with lock, lock:
        in_child(enter)


@needs_fork
def test_a_job_that_forks_leaves_the_lock_to_the_parent(locks):
    children = []

    @once(locks, "job", at_least=60)
    def job():
        children.append(os.fork())
        return children[-1] == 0

    is_child = job()
    if is_child:
        os._exit(0)
    assert ends_well(children[0])
    assert locks.locked_by("job") is not None


PROGRAM = """
import os, sys, threading
import redis, redlatch_client
client = redis.Redis.from_url(sys.argv[1])
locks = redlatch_client.Locks(client)
is_locked, is_over = threading.Event(), threading.Event()
def keep():
    # As the thread that renews may have it at the moment of the fork.
    with locks._background()._changed:
        is_locked.set()
        is_over.wait()
with locks.lock("k") as held:
    threading.Thread(target=keep).start()
    is_locked.wait()
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
    is_over.set()
    assert locks.locked_by("k").token == held.token
    held.raise_if_lost()
"""


@needs_fork
def test_a_child_that_ends_as_programs_do_leaves_the_lock_to_its_parent(namespace):
    subprocess.run([sys.executable, "-c", PROGRAM, namespace.url], check=True, timeout=PATIENCE)


def told(held, answers):
    answers.put((held.release(), held.lost.reason))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_hold_is_not_given_to_another_process(locks, method):
    context = multiprocessing.get_context(method)
    with locks.lock("k") as held:
        answers = context.Queue()
        process = context.Process(target=told, args=(held, answers))
        if method == "fork":
            process.start()
            assert answers.get(timeout=PATIENCE) == (False, "forked")
            process.join(PATIENCE)
        else:
            assert "a hold cannot be pickled or copied" in raised(TypeError, process.start)
        assert locks.locked_by("k").token == held.token


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_hold_has_no_copy(face, namespace, make):
    locks = face.locks(lambda module, retry: module.Redis(**namespace.kwargs))
    held = locks.lock("k").acquire()
    held = getattr(held, "_inner", held)
    assert raised(TypeError, make, held) == "a hold cannot be pickled or copied: it belongs to the process that took the lock"


@needs_fork
def test_a_child_of_a_task_leaves_the_lock_to_its_parent(namespace):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            lock = locks.lock("k")
            held = await lock.__aenter__()

            def try_to():
                assert done(held.release()) is False
                assert held.lost.is_set() and done(held.lost.wait()) and held.lost.reason == "forked"
                for work, *arguments in [(held.extend,), (held.leave, 1), (held.fenced, sqlite3.connect(":memory:"))]:
                    raised(rc.LockLost, lambda work=work, arguments=arguments: done(work(*arguments)))
                assert "another process" in raised(RuntimeError, lambda: done(locks.lock("l").acquire()))
                done(lock.__aexit__(None, None, None))
                done(locks.aclose())

            in_child(try_to)
            assert requests(namespace, "LOCK.RELEASE") == []
            assert (await locks.locked_by("k")).token == held.token and not held.lost.is_set()
            await lock.__aexit__(None, None, None)
            await locks.aclose()

    asyncio.run(main())


@needs_fork
def test_locks_of_asyncio_may_be_made_before_a_fork_and_used_after_it(namespace):
    locks = aio.Locks(redis.asyncio.Redis(**namespace.kwargs))

    async def main():
        async with locks.lock("k"):
            assert (await locks.locked_by("k")).token
        await locks.aclose()

    in_child(lambda: asyncio.run(main()))


@needs_fork
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_session_ends_with_the_process_that_began_it_though_a_child_lives(locks, namespace, face):
    def begin():
        if face == "threads":
            held = locks.lock("k", session=True).acquire()
            leave_a_child()
            held.raise_if_lost()
        else:
            asyncio.run(begin_in_task())

    async def begin_in_task():
        held = await aio.Locks(redis.asyncio.Redis(**namespace.kwargs)).lock("k", session=True).acquire()
        leave_a_child()
        held.raise_if_lost()

    def leave_a_child():
        child = fork(lambda: (os.close(end), os.read(hold, 1)))
        os.write(told, b"%d" % child)
        os.kill(os.getpid(), signal.SIGKILL)

    hold, end = os.pipe()
    tells, told = os.pipe()
    parent = fork(begin)
    os.close(told)
    os.waitpid(parent, 0)
    child = int(os.read(tells, 20))
    await_until(lambda: locks.locked_by("k") is None)
    # The child lives: it reads the end of the pipe only now.
    os.kill(child, 0)
    for pipe in hold, end, tells:
        os.close(pipe)


@needs_fork
def test_a_child_does_not_end_the_session_of_its_parent(locks, namespace):
    with locks.lock("k", session=True) as held:
        in_child(lambda: held.release())
        held.raise_if_lost()
        assert locks.locked_by("k").token == held.token
