"""Does the steps of `../../conformance.json` with a client. What each step means is in `../../README.md`."""

import contextlib
import json
import pathlib
import threading
import time

import redis

import redlatch_client as rc

SCENARIOS = json.loads((pathlib.Path(__file__).parents[2] / "conformance.json").read_text())["scenarios"]
PATIENCE = 30.0
FAILURES = {
    "deadlock": (rc.Deadlock,),
    "held": (rc.LockHeld,),
    "held-or-refused": (rc.LockHeld, rc.Refused),
    "invalid": (ValueError,),
    "lost": (rc.LockLost,),
    "not-supported": (rc.NotSupported,),
    "refused": (rc.Refused,),
    "unreachable": (rc.Unreachable,),
}
OPTIONS = {"lease", "wait", "shared", "permits", "reentrant", "session", "delay", "meta", "owner", "renew"}


class Begun(threading.Thread):
    """An acquisition that waits."""

    def __init__(self, lock):
        super().__init__(daemon=True)
        self._lock = lock
        self.start()

    def run(self):
        try:
            self.came = self._lock.acquire()
        except Exception as error:
            self.came = error

    def result(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "it still waits"
        if isinstance(self.came, Exception):
            raise self.came
        return self.came


class Runner:
    """A run of one scenario. `locks`: the client; `send` sends words to the server beside it, and returns what comes;
    `restart` restarts the server."""

    def __init__(self, locks, send, restart=None):
        self._locks = locks
        self._send = send
        self._restart = restart
        self._holds = {}
        self._begun = {}

    def run(self, steps):
        for number, step in enumerate(steps, 1):
            verb, what = next(iter(step.items()))
            begun = time.monotonic()
            try:
                getattr(self, f"do_{verb}")(what, step)
                took = time.monotonic() - begun
                assert step.get("after", 0) <= took <= step.get("within", took), f"it has taken {took} s"
            except Exception as error:
                raise AssertionError(f"step {number}, {step}: {type(error).__name__}: {error}") from error

    def do_take(self, name, step):
        wanted = FAILURES.get(step.get("fails"), ())
        try:
            self._holds[name] = self._lock(step).acquire()
            assert not wanted, "it was granted"
        except wanted as error:
            for text in step.get("says", []):
                assert self._filled(text) in str(error), f"{text!r} is not in: {error}"
            if "holder" in step:
                self._compare(error.holder, step["holder"])

    def do_begin(self, name, step):
        self._begun[name] = Begun(self._lock(step))

    def do_granted(self, name, step):
        self._holds[name] = self._begun[name].result()

    def do_release(self, name, step):
        with self._failing(step):
            assert self._holds[name].release() is step["gives"]

    def do_extend(self, name, step):
        with self._failing(step):
            self._holds[name].extend(*[step[key] for key in ["lease"] if key in step])

    def do_leave(self, name, step):
        with self._failing(step):
            self._holds[name].leave(step["rest"])

    @contextlib.contextmanager
    def _failing(self, step):
        try:
            yield
        except FAILURES.get(step.get("fails"), ()):
            return
        assert "fails" not in step, "it has not failed"

    def do_holds(self, name, step):
        self._holds[name].raise_if_lost()
        assert not self._holds[name].lost.is_set() and self._holds[name].remaining() > 0

    def do_lost(self, name, step):
        held = self._holds[name]
        assert held.lost.wait(PATIENCE), "it is not lost"
        assert held.lost.reason in step["reason"], held.lost.reason
        assert held.remaining() == 0
        try:
            held.raise_if_lost()
            raise AssertionError("it raises nothing")
        except rc.LockLost as error:
            assert all(text in str(error) for text in step.get("says", [])), str(error)

    def do_listens(self, name, step):
        # It is subscribed, and has renewed what it held before.
        self._until(["LOCK.WHO", self._holds[name].key], "holders.0.renewals", lambda found: found >= 1)

    def do_remaining(self, name, step):
        found = self._holds[name].remaining()
        assert step.get("at_least", 0) <= found <= step.get("at_most", found), found

    def do_token(self, name, step):
        assert self._holds[name].token == step["is"]

    def do_rise(self, names, step):
        tokens = [self._holds[name].token for name in names]
        assert tokens == sorted(set(tokens)), tokens

    def do_next_token(self, names, step):
        first, second = (self._holds[name].token for name in names)
        assert second == first + 1, (first, second)

    def do_locked_by(self, key, step):
        self._compare(self._locks.locked_by(key), step["is"])

    def do_server(self, words, step):
        answer = self._ask(words)
        if "answers" in step:
            assert answer == self._filled(step["answers"]), answer

    def do_until(self, words, step):
        def fits(found):
            if "is" in step:
                return found == step["is"]
            return found is not None and step.get("at_least", found) <= found <= step.get("at_most", found)

        self._until(words, step.get("field"), fits)

    def do_restart(self, what, step):
        self._restart()

    def _lock(self, step):
        options = {name: self._filled(value) for name, value in step.items() if name in OPTIONS}
        if "permits" in options:
            options["permits"] = tuple(options["permits"])
        return self._locks.all(step["keys"], **options) if "keys" in step else self._locks.lock(step["key"], **options)

    def _until(self, words, field, fits):
        until = time.monotonic() + PATIENCE
        while True:
            try:
                found = self._ask(words)
            except (redis.ConnectionError, redis.TimeoutError):
                # The server has been killed.
                found = None
            for name in field.split(".") if field else []:
                found = found[int(name)] if isinstance(found, list) and len(found) > int(name) else dict(found or {}).get(name)
            if fits(found):
                return
            assert time.monotonic() < until, f"it is {found}"
            time.sleep(0.005)

    def _ask(self, words):
        return self._send(*[self._filled(word) for word in words])

    def _filled(self, value):
        """`$a.token` stands for what the hold `a` has; `{"repeat": ...}` for a long text."""
        if isinstance(value, dict) and "repeat" in value:
            return value["repeat"] * value["times"]
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, str):
            for name, held in self._holds.items():
                value = value.replace(f"${name}.token", str(held.token)).replace(f"${name}.owner", held.owner.decode())
        return value

    def _compare(self, holder, wanted):
        if wanted is None:
            assert holder is None, holder
            return
        for name, value in wanted.items():
            found = getattr(holder, name)
            assert str(found) == self._filled(value) if isinstance(value, str) else found == value, f"{name} is {found!r}"
