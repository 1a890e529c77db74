"""What the scenarios do not say: many threads and tasks at once, cancellation, rights, the ends of blocks."""

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import threading
import time

import pytest
import redis
import redis.asyncio

import redlatch
import redlatch_client as rc
from redlatch_client import _core, _terms, aio
from servers import await_until, process_of

PATIENCE = 30
#: Takes for each of fifty contenders: REDLATCH_TAKES=1000 for a long run.
TAKES = int(os.environ.get("REDLATCH_TAKES", "40"))


@pytest.fixture
def operator(namespace):
    """A client whose connections have taken no lock."""
    with redis.Redis(**namespace.kwargs, protocol=3) as client:
        yield client


class Guarded:
    """What only one at a time may use."""

    def __init__(self):
        self.users = 0
        self.tokens = []

    def enter(self, token):
        self.users += 1
        assert self.users == 1, "two hold the lock"
        self.tokens.append(token)

    def leave(self):
        self.users -= 1


def check(guarded):
    assert len(guarded.tokens) == 50 * TAKES
    assert guarded.tokens == sorted(set(guarded.tokens)), "tokens rise"


def test_fifty_threads_exclude_each_other(locks):
    guarded, failures = Guarded(), []

    def contend():
        try:
            for _ in range(TAKES):
                with locks.lock("k", wait=PATIENCE) as held:
                    guarded.enter(held.token)
                    guarded.leave()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=contend) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check(guarded)


def test_fifty_tasks_exclude_each_other(namespace):
    async def main():
        guarded = Guarded()
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)

            async def contend():
                for _ in range(TAKES):
                    async with locks.lock("k", wait=PATIENCE) as held:
                        guarded.enter(held.token)
                        await asyncio.sleep(0)
                        guarded.leave()

            await asyncio.gather(*[contend() for _ in range(50)])
            await locks.aclose()
        check(guarded)

    asyncio.run(main())


def test_a_wait_is_one_request(locks, namespace, operator):
    with locks.lock("k"):
        waiter = threading.Thread(target=lambda: locks.lock("k", wait=PATIENCE).acquire().release())
        waiter.start()
        # So long a client that polls has asked many times.
        await_until(lambda: (operator.execute_command("LOCK.WHO", "k")[b"waited"] or 0) >= 200)
    waiter.join(PATIENCE)
    assert len([event for event in namespace.history(command="LOCK.ACQUIRE") if event["kind"] == "request"]) == 2


def test_a_block_whose_lock_was_lost_says_so_at_its_end(locks, operator):
    with pytest.raises(rc.LockLost) as lost:
        with locks.lock("k") as held:
            operator.execute_command("LOCK.BREAK", "k", "TOKEN", held.token)
            held.lost.wait(PATIENCE)
    assert lost.value.reason in ("broken", "not-held") and lost.value.token == held.token


def test_a_loss_that_only_the_release_finds_is_raised_at_the_end_of_the_block(locks, operator):
    with pytest.raises(rc.LockLost):
        with locks.lock("k"):
            operator.delete("k")


def test_a_loss_that_only_the_release_finds_is_raised_at_the_end_of_the_block_of_a_task(namespace, operator):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            with pytest.raises(rc.LockLost):
                async with locks.lock("k"):
                    operator.delete("k")
            await locks.aclose()

    asyncio.run(main())


def test_a_block_may_release_its_lock_or_leave_it(locks):
    with locks.lock("k") as held:
        assert held.release()
    with locks.lock("k") as held:
        held.leave(10)


def test_a_block_may_hand_its_lock_over(locks):
    with locks.lock("k") as held:
        token = held.transfer_to("node-2", lease=60)
        assert held.lost.is_set() and held.lost.reason == "transferred"
    assert locks.locked_by("k").token == token > held.token
    assert held.release() is False and held.remaining() == 0


def test_a_block_of_a_task_may_hand_its_lock_over_and_is_cancelled_if_it_wishes(namespace):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            async with locks.lock("k") as held:
                token = await held.transfer_to("node-2", lease=60)
            assert (await locks.locked_by("k")).token == token > held.token
            with pytest.raises(rc.LockLost, match="handed over"):
                async with locks.lock("l").cancelling() as held:
                    handing = asyncio.create_task(held.transfer_to("node-2", lease=60))
                    await asyncio.Event().wait()
            assert await handing > held.token
            await locks.aclose()

    asyncio.run(main())


def test_the_exception_of_a_block_is_its_own(locks, operator):
    with pytest.raises(KeyError):
        with locks.lock("k") as held:
            operator.delete("k")
            held.lost.wait(PATIENCE)
            raise KeyError


def test_a_lock_object_serves_several_threads_and_nests_if_it_is_reentrant(locks):
    lock = locks.lock("k", reentrant=True)
    with lock as outer, lock as inner:
        assert outer.token == inner.token and locks.locked_by("k").permits == 2
    assert locks.locked_by("k") is None
    shared = locks.lock("k", shared=True)
    both = threading.Barrier(2, timeout=PATIENCE)
    left = []

    def read():
        with shared as held:
            both.wait()
            left.append(held)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert all(held.remaining() == 0 for held in left) and locks.locked_by("k") is None


def test_leave_keeps_the_lock_without_renewal(locks):
    held = locks.lock("k").acquire()
    held.leave(600)
    assert held.remaining() == 0 and not held.lost.is_set() and not held.release()
    assert 590 < locks.locked_by("k").left <= 600


def test_a_hold_that_was_released_is_neither_extended_nor_lost(locks):
    held = locks.lock("k").acquire()
    assert held.release()
    held.deadline = time.monotonic()
    with pytest.raises(rc.LockLost, match="it was released"):
        held.extend()
    assert not held.lost.wait(0.1) and held.remaining() == 0


def test_a_hold_whose_release_was_refused_is_forgotten_at_its_deadline(locks, namespace):
    namespace.faults.error("NOPERM not now", command="LOCK.RELEASE")
    # Nor is it told.
    namespace.faults.error("NOPERM not now", command="PSUBSCRIBE")
    held = locks.lock("k", lease=0.5).acquire()
    with pytest.raises(rc.Refused):
        held.release()
    # Nobody asks whether it is lost.
    await_until(lambda: not locks._server.holds)


def test_a_session_lasts_until_its_release_is_done(locks, namespace):
    held = locks.lock("k", session=True).acquire()
    # Longer than a session waits for messages at once.
    namespace.faults.delay(1.5, command="LOCK.RELEASE", times=1)
    assert held.release()


@pytest.mark.parametrize("wait", [0, 0.5])
def test_a_call_ends_at_its_budget_while_the_name_is_looked_up(face, wait, monkeypatch):
    looked_up, answers = socket.getaddrinfo, threading.Event()

    def lookup(host, *arguments, **options):
        if host == "hangs.test":
            answers.wait(PATIENCE)
        return looked_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    locks = face.locks(lambda module, retry: module.Redis(host="hangs.test"), budget=0.3)
    begun = time.monotonic()
    try:
        with pytest.raises(rc.Unreachable):
            locks.lock("k", wait=wait).acquire()
        assert time.monotonic() - begun < PATIENCE / 4
    finally:
        # The lookup ends by itself.
        answers.set()


def test_the_last_pause_is_what_is_left_of_the_wait(monkeypatch):
    now = 100.0
    monkeypatch.setattr(_core, "monotonic", lambda: now)
    budget, pauses = _core.Budget(5, wait=3), []
    with pytest.raises(rc.Unreachable):
        while True:
            pauses.append(budget.after(redis.ConnectionError("away")).seconds)
            now += pauses[-1]
    assert now == pytest.approx(103) and pauses[-1] < 2 * pauses[-2] and budget.left() == pytest.approx(5)


def test_a_connection_that_came_too_late_is_given_back(namespace, monkeypatch):
    connect, may_connect = redis.Connection.connect, threading.Event()
    monkeypatch.setattr(redis.Connection, "connect", lambda self: may_connect.wait(PATIENCE) and connect(self))
    pool = redis.ConnectionPool(**namespace.kwargs, max_connections=1)
    locks = rc.Locks(redis.Redis(connection_pool=pool), budget=0.1)
    with pytest.raises(rc.Unreachable):
        locks.locked_by("k")
    may_connect.set()
    await_until(lambda: not pool._in_use_connections)
    assert locks.locked_by("k") is None
    pool.close()


def test_a_connection_that_another_task_ends_while_it_sends_has_ended(namespace, monkeypatch):
    """As a cluster's client does that finds its nodes anew: redis-py has no writer then."""
    send, failures = redis.asyncio.Connection.send_command, [AttributeError("'NoneType' object has no attribute 'writelines'")]

    async def send_or_fail(connection, *words, **options):
        if failures and words[0] == "LOCK.ACQUIRE":
            await connection.disconnect(nowait=True)
            raise failures.pop()
        await send(connection, *words, **options)

    async def work():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            async with locks.lock("k"):
                assert not failures
            await locks.aclose()

    monkeypatch.setattr(redis.asyncio.Connection, "send_command", send_or_fail)
    asyncio.run(work())


def break_once(monkeypatch, method, failures, thread):
    """As where another thread, which finds the nodes of a cluster anew, closes a connection while this one looks at it, or connects."""
    whole = getattr(redis.Connection, method)

    def whole_or_fail(connection, *arguments, **options):
        # What waits for an answer has a limit as its argument.
        if failures and threading.current_thread().name == thread and not arguments and not options:
            raise failures.pop()
        return whole(connection, *arguments, **options)

    monkeypatch.setattr(redis.Connection, method, whole_or_fail)


@pytest.mark.parametrize("failure", [ValueError("I/O operation on closed file"), AttributeError("'NoneType' object has no attribute 'x'")])
def test_a_connection_that_another_thread_closes_has_ended(locks, monkeypatch, failure):
    failures = []
    break_once(monkeypatch, "can_read", failures, threading.current_thread().name)
    other = locks.lock("j").acquire()
    until = other.deadline
    # The thread that listens renews all once it has subscribed: nothing uses the connection of the pool after that.
    await_until(lambda: other.deadline > until)
    failures.append(failure)
    held = locks.lock("k").acquire()
    assert not failures
    failures.append(failure)
    assert held.release() and not failures


def test_a_session_outlives_a_connection_that_another_thread_closes(locks, operator, monkeypatch):
    held = locks.lock("k", session=True, delay=PATIENCE).acquire()
    address, until, failures = locks.locked_by("k").address, held.deadline, [ValueError("I/O operation on closed file")]
    break_once(monkeypatch, "connect", failures, "redlatch-client-connect")
    operator.execute_command("CLIENT", "KILL", "ADDR", address)
    await_until(lambda: held.deadline > until or held.lost.is_set())
    assert not failures and not held.lost.is_set() and held.release()


BLOCKING = {"ConnectionPool": {}, "BlockingConnectionPool": {"timeout": PATIENCE}}


def pooled(namespace, kind, size):
    """What makes clients whose pools have so many places."""
    return lambda module, retry: module.Redis(
        connection_pool=getattr(module, kind)(**namespace.kwargs, **BLOCKING[kind], max_connections=size)
    )


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_pool_that_is_full_refuses_after_the_budget_and_sends_nothing(face, namespace, kind):
    locks = face.locks(pooled(namespace, kind, 3), budget=2, on_unavailable="open")
    held = locks.lock("k", session=True).acquire()
    begun = time.monotonic()
    # Two places are not for what lasts, and the other one is taken.
    with pytest.raises(rc.Refused, match="pool of connections of this program is full: all 3 "):
        locks.lock("l", session=True).acquire()
    assert 2 <= time.monotonic() - begun < PATIENCE and locks.locked_by("l") is None
    assert held.release() and locks.lock("l", session=True).acquire().release()


@pytest.mark.parametrize("kind", BLOCKING)
def test_more_tasks_than_places_take_locks_each_in_its_turn(namespace, kind):
    async def main():
        client = pooled(namespace, kind, 10)(redis.asyncio, None)
        locks = aio.Locks(client, budget=PATIENCE)
        held = await asyncio.gather(*[locks.lock(f"k{number}").acquire() for number in range(300)])
        assert all(await asyncio.gather(*[each.release() for each in held]))

        async def contend():
            async with locks.lock("k", wait=PATIENCE):
                await asyncio.sleep(0)

        # Those who wait leave a place for the release that they wait for.
        await asyncio.gather(*[contend() for _ in range(300)])
        await locks.aclose()
        await client.connection_pool.disconnect()

    asyncio.run(main())


@pytest.mark.parametrize("kind", BLOCKING)
def test_more_threads_than_places_take_locks_each_in_its_turn(namespace, kind):
    client, failures = pooled(namespace, kind, 4)(redis, None), []
    locks = rc.Locks(client, budget=PATIENCE)

    def contend(number):
        try:
            with locks.lock(f"k{number}"), locks.lock("k", wait=PATIENCE):
                pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    locks.close()
    client.connection_pool.disconnect()


def test_a_lease_counts_from_the_moment_in_which_a_place_was_found(namespace):
    pool = redis.ConnectionPool(**namespace.kwargs, max_connections=1)
    locks, taken = rc.Locks(redis.Redis(connection_pool=pool), budget=PATIENCE), pool.get_connection()
    freeing = threading.Timer(1.2, lambda: pool.release(taken))
    freeing.start()
    # The lease is shorter than the time without a place.
    held = locks.lock("k", lease=1).acquire()
    assert held.deadline > time.monotonic() - 0.3
    freeing.join()
    locks.close()
    pool.disconnect()


@pytest.mark.parametrize("client", ["redis://127.0.0.1:6379", None, redis.ConnectionPool()])
def test_what_is_no_client_is_refused_by_name(client):
    with pytest.raises(TypeError, match="no redis.Redis"):
        rc.Locks(client)
    with pytest.raises(TypeError, match="no redis.asyncio.Redis"):
        aio.Locks(client)


def test_a_client_for_the_other_kind_of_program_is_refused_by_name(client):
    with pytest.raises(TypeError, match="no redis.asyncio.Redis"):
        aio.Locks(client)
    with pytest.raises(TypeError, match="no redis.Redis"):
        rc.Locks(redis.asyncio.Redis())


def test_arguments_of_a_wrong_type_are_refused_by_name(locks):
    for wrong in (lambda: locks.lock(7), lambda: locks.locked_by(None), lambda: locks.all("stock"), lambda: locks.all(["k", 7])):
        with pytest.raises(TypeError, match="^key"):
            wrong()
    with pytest.raises(ValueError, match="owner"):
        locks.lock("k", owner="")
    for permits in [(1.0, 3), ("1", 3)]:
        with pytest.raises(ValueError, match="permits"):
            locks.lock("k", permits=permits)


def test_wrong_modes_and_priorities_and_too_many_keys_are_refused_by_name(locks):
    for make in (locks.all, locks.any_of):
        for modes in ({"m": "shared"}, {"k": "exclusive"}, {"k": [1, 2]}, {"k": None}):
            with pytest.raises(ValueError, match="^modes"):
                make(["k", "l"], modes=modes)
        with pytest.raises(ValueError, match="permits"):
            make(["k"], modes={"k": (0, 2)})
        with pytest.raises(ValueError, match="at most 1000, not 1001"):
            make(map(str, range(1001)))
        with pytest.raises(TypeError, match="^key"):
            make("stock")
        for priority in (-1, 10, 1.5, "1"):
            with pytest.raises(ValueError, match="^priority"):
                make(["k"], priority=priority)
    # A key may be written in both ways.
    with locks.all(["k", b"l"], modes={b"k": "shared"}), locks.any_of(["k", "l"], modes={b"k": "shared"}) as held:
        assert held.key == "k"


@pytest.mark.parametrize("budget", [0, -1, float("inf"), float("nan")])
def test_a_budget_is_a_time_with_an_end(client, budget):
    with pytest.raises(ValueError):
        rc.Locks(client, budget=budget)
    with pytest.raises(ValueError):
        aio.Locks(client, budget=budget)


@pytest.mark.parametrize("options, margin", [
    ({"lease": 5}, 0.5),
    ({"lease": 30}, 1),
    ({"lease": 30, "stop_before": 0}, 0),
    ({"lease": 30, "stop_before": 12.5}, 12.5),
    ({"session": True, "delay": 2}, 0.2),
    ({"session": True, "delay": 60}, 1),
    ({"session": True, "delay": 60, "stop_before": 59}, 59),
])
def test_a_hold_is_lost_some_time_before_its_deadline(options, margin):
    hold = hold_of(**options)
    assert hold.deadline - hold._stops_at == pytest.approx(margin)
    # It is renewed before.
    assert hold._next < hold._stops_at


def test_a_session_without_a_delay_is_lost_with_its_connection_alone():
    assert hold_of(session=True)._stops_at == float("inf")


def test_a_lease_that_is_extended_has_its_own_time_to_stop():
    hold = hold_of(lease=30)
    hold._renewed(hold.deadline - 30, 2)
    assert hold.deadline - hold._stops_at == pytest.approx(0.2)
    hold._renewed(hold.deadline - 2, 30)
    assert hold.deadline - hold._stops_at == pytest.approx(1)


def hold_of(**options):
    terms = _terms.terms_of(["k"], **options)
    return _core.Hold(terms, _core.Grant(7, time.monotonic()), _core.Server(), renews=True)


def test_a_lease_is_not_extended_by_less_than_it_takes_to_stop(face, namespace):
    locks = face.locks(lambda module, retry: module.Redis(**namespace.kwargs))
    for lock in locks.lock("k", stop_before=5), locks.all(["k"], stop_before=5):
        held = lock.acquire()
        with pytest.raises(ValueError):
            held.extend(5)
        held.extend(6)
        # What is left needs no time to stop.
        held.leave(3)
        assert not held.lost.is_set() and 0 < locks.locked_by("k").left <= 3
        namespace.clock.advance(4)


@contextlib.contextmanager
def nobody():
    """The port of a server that refuses all connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_an_open_hold_is_counted_and_logged_and_no_database_is_asked(face, caplog):
    class Database:
        def __getattribute__(self, name):
            raise AssertionError(f"{name} of the database is used")

    with nobody() as port:
        locks = face.locks(lambda module, retry: module.Redis(host="127.0.0.1", port=port), budget=0.5, on_unavailable="open")
        with caplog.at_level(logging.WARNING, "redlatch_client"):
            held = locks.lock("k").acquire()
        assert held.open and held.token is None and locks.opened == 1
        assert [record.levelname for record in caplog.records if "k is not locked" in record.message] == ["WARNING"]
        with pytest.raises(rc.Unreachable, match="k is not locked"):
            held.fenced(Database())
        held.extend(5)
        held.leave(5)
        held.raise_if_lost()
        assert held.remaining() == float("inf") and not held.lost.is_set() and not held.release()
        locks.lock("k", session=True).acquire()
        assert locks.opened == 2


def test_a_block_under_an_open_hold_ends_without_a_loss():
    async def work(port):
        async with redis.asyncio.Redis(host="127.0.0.1", port=port) as client:
            async with aio.Locks(client, budget=0.5, on_unavailable="open").lock("k") as held:
                assert held.open

    with nobody() as port, redis.Redis(host="127.0.0.1", port=port) as client:
        with rc.Locks(client, budget=0.5, on_unavailable="open").lock("k") as held:
            assert held.open
        asyncio.run(work(port))


def test_a_wrong_password_opens_nothing(face):
    with process_of(redlatch.find_binary(), "--port", "0", "--unixsocket", "SOCKET") as path:
        login = {"unix_socket_path": path, "username": "somebody", "password": "wrong"}
        locks = face.locks(lambda module, retry: module.Redis(**login), on_unavailable="open")
        with pytest.raises(rc.Unreachable):
            locks.lock("k").acquire()
        assert locks.opened == 0


def test_what_is_done_where_nobody_answers_is_one_of_two(client):
    for kind in rc.Locks, aio.Locks:
        with pytest.raises(ValueError):
            kind(client, on_unavailable="ajar")


def test_locks_that_are_closed_take_none(locks):
    session = locks.lock("k", session=True).acquire()
    locks.close()
    with pytest.raises(RuntimeError):
        locks.lock("l").acquire()
    # Its connection is closed.
    await_until(lambda: locks.locked_by("k") is None)
    del session


def test_errors_can_be_pickled(locks):
    with locks.lock("k", meta={"reason": "release"}):
        errors = [failure_of(locks.lock("k").acquire), rc.LockLost("k", 7, "broken", "why"), rc.NotSupported("meta"), rc.Refused("NO")]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)
        assert getattr(copy, "holder", None) == getattr(error, "holder", None)


def test_a_user_who_may_not_subscribe_finds_losses_out_by_renewal(caplog):
    # Users are those of a server, not of a namespace.
    with process_of(redlatch.find_binary(), "--port", "0", "--unixsocket", "SOCKET") as path:
        operator = redis.Redis(unix_socket_path=path)
        operator.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels")
        with redis.Redis(unix_socket_path=path, username="limited", password="secret") as client:
            locks = rc.Locks(client)
            with caplog.at_level(logging.WARNING, "redlatch_client"):
                held = locks.lock("k", lease=3).acquire()
                await_until(lambda: "renewals only" in caplog.text)
                operator.delete("k")
                assert held.lost.wait(PATIENCE) and held.lost.reason == "not-held"
            locks.close()
        operator.close()


def test_a_cancelled_wait_leaves_the_queue(namespace):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            async with locks.lock("k"):
                waiting = asyncio.create_task(locks.lock("k", wait=PATIENCE).acquire())
                while not (await locks.locked_by("k")).waiters:
                    await asyncio.sleep(0.005)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                while (await locks.locked_by("k")).waiters:
                    await asyncio.sleep(0.005)
            assert await locks.locked_by("k") is None
            await locks.aclose()

    asyncio.run(main())


def test_one_of_several_that_a_cancelled_call_was_granted_is_released(namespace, operator):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            operator.execute_command("TEST.FAULT", "ADD", "COMMAND", "LOCK.MACQUIRE", "DO", "STALL", "60000")
            taking = asyncio.create_task(locks.any_of(["k1", "k2"]).acquire())
            while not operator.exists("k1"):
                await asyncio.sleep(0.005)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            while operator.exists("k1"):
                await asyncio.sleep(0.005)
            await locks.aclose()

    asyncio.run(main())


def test_a_release_that_is_cancelled_is_done_all_the_same(namespace):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            held = await locks.lock("k").acquire()
            releasing = asyncio.create_task(held.release())
            await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.wait([releasing])
            while await locks.locked_by("k"):
                await asyncio.sleep(0.005)
            await locks.aclose()

    asyncio.run(main())


def test_a_release_of_a_reentrant_lock_that_is_cancelled_counts_once(namespace):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            one, other = [await locks.lock("k", owner="a", reentrant=True).acquire() for _ in range(2)]
            tasks = len(locks._tasks)
            with namespace.faults.stall(300, command="LOCK.RELEASE", times=1):
                releasing = asyncio.create_task(one.release())
                while (await locks.locked_by("k")).permits == 2:
                    await asyncio.sleep(0.005)
                # It was carried out, and nobody has told so.
                releasing.cancel()
                await asyncio.wait([releasing])
            while len(locks._tasks) > tasks:
                await asyncio.sleep(0.005)
            assert (await locks.locked_by("k")).permits == 1
            assert await other.release()
            assert await locks.locked_by("k") is None
            await locks.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("options, reason", [({"lease": 3}, "not-held"), ({"session": True}, "session")])
def test_a_release_that_is_cancelled_and_then_refused_is_told(namespace, options, reason):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            namespace.faults.error("NOPERM not now", command="LOCK.RELEASE")
            held = await locks.lock("k", **options).acquire()
            releasing = asyncio.create_task(held.release())
            await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.wait([releasing])
            await asyncio.wait_for(held.lost.wait(), PATIENCE)
            assert held.lost.reason == reason
            # The connection of a session is closed.
            while await locks.locked_by("k"):
                await asyncio.sleep(0.005)
            await locks.aclose()

    asyncio.run(main())


def test_a_block_is_cancelled_when_its_lock_is_lost(namespace, operator):
    async def main():
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            with pytest.raises(rc.LockLost):
                async with locks.lock("k").cancelling() as held:
                    operator.execute_command("LOCK.BREAK", "k", "TOKEN", held.token)
                    await asyncio.Event().wait()
            # The cancellation is over.
            await asyncio.sleep(0)
            # A block that has ended is not cancelled.
            async with locks.lock("k").cancelling() as held:
                pass
            # One that ends in the moment of the loss is told all the same.
            with pytest.raises(rc.LockLost):
                async with locks.lock("k").cancelling() as held:
                    held._lose("broken")
            await asyncio.sleep(0)
            # Somebody else's cancellation stays one, also in the moment of the loss.
            async def loses():
                async with locks.lock("k").cancelling() as held:
                    held._lose("broken")
                    asyncio.current_task().cancel()

            loser = asyncio.create_task(loses())
            await asyncio.wait([loser])
            assert loser.cancelled() or not hasattr(loser, "uncancel")

            async def holds():
                async with locks.lock("k").cancelling():
                    await asyncio.Event().wait()

            holder = asyncio.create_task(holds())
            while not await locks.locked_by("k"):
                await asyncio.sleep(0.005)
            holder.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holder
            assert await locks.locked_by("k") is None
            await locks.aclose()

    asyncio.run(main())


def test_a_loop_that_ends_without_aclose_ends(namespace):
    async def main():
        client = redis.asyncio.Redis(**namespace.kwargs)
        locks = aio.Locks(client)
        await locks.lock("k", session=True).acquire()

    begun = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun < PATIENCE


def failure_of(call):
    try:
        call()
    except Exception as error:
        return error
    return None
