#!/usr/bin/env python3
"""Does the scenarios of conformance.json with the lock clients of all languages, each driven through an adapter. What steps,
servers and adapters are is in ../README.md.

    run.py --adapter LANGUAGE='COMMAND ...'     one, or several: of versions of a library, or of languages

Owns    the steps, the bounds in time, and the comparisons. An adapter decides nothing.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

import broken
import servers

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = json.loads((HERE / "conformance.json").read_text())["scenarios"]
# How long a step waits for what is to come.
PATIENCE_SECONDS = 30.0
# A call of a client may take its budget and its wait, which is 60 s at most.
ANSWER_SECONDS = 120.0
# The first connection of a process takes long on a busy machine.
BUDGET_SECONDS = 30.0
OPTIONS = (
    "lease", "wait", "priority", "delay", "shared", "permits", "modes", "reentrant", "session", "meta", "owner", "renew", "stop_before"
)
KEYS = ("key", "keys", "any_of")
BOUNDS = {"after", "within"}
SERVERS = {"hostile", "plain", "redlatch", "redlatch-cluster", "redlatch-replicated", "redlatch-with-journal"}
CONNECTIONS = {"single", "cluster", "sentinel"}
# The words of each step beside its verb.
WORDS = {
    "take": {"fails", "holder", "says", "opens", "gets", *KEYS, *OPTIONS},
    "begin": {*KEYS, *OPTIONS},
    "granted": {"gets"},
    "release": {"gives", "fails"},
    "extend": {"lease", "fails"},
    "leave": {"rest", "fails"},
    "transfer": {"to", "lease", "fails", "says"},
    "fenced": {"fails"},
    "holds": set(),
    "lost": {"reason", "says"},
    "listens": set(),
    "remaining": {"at_least", "at_most"},
    "token": {"is"},
    "rise": set(),
    "next_token": set(),
    "locked_by": {"is"},
    "server": {"answers"},
    "until": {"field", "is", "at_least", "at_most"},
    "restart": set(),
}


class Failure(Exception):
    """What an adapter was asked for has failed."""

    def __init__(self, kind: str, says: str = "", holder: Any = None) -> None:
        super().__init__(f"{kind}: {says}")
        self.kind, self.says, self.holder = kind, says, holder


class Adapter:
    """The process of an adapter. Requests may be answered in any order."""

    def __init__(self, command: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(shlex.split(command), stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self._ids = itertools.count(1)
        self._coming: dict[int, concurrent.futures.Future[dict[str, Any]]] = {}
        self._ended = ""
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, verb: str, **words: Any) -> concurrent.futures.Future[dict[str, Any]]:
        """Sends a request. The future has its answer."""
        id = next(self._ids)
        coming = self._coming[id] = concurrent.futures.Future()
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps({"id": id, "do": verb, **words}) + "\n")
        if self._ended:
            self._give_up(self._ended)
        return coming

    def do(self, verb: str, **words: Any) -> Any:
        """What a request is answered. Raises `Failure`."""
        return result(self.begin(verb, **words), ANSWER_SECONDS)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                answer = json.loads(line)
                self._coming.pop(answer["id"]).set_result(answer)
            except (ValueError, KeyError, TypeError):
                self._give_up(f"it has written {line!r}")
        self._give_up("it has ended")

    def _give_up(self, why: str) -> None:
        self._ended = why
        for coming in list(self._coming.values()):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                coming.set_result({"fails": {"kind": "adapter", "says": why}})


def result(coming: concurrent.futures.Future[dict[str, Any]], seconds: float) -> Any:
    try:
        answer = coming.result(seconds)
    except concurrent.futures.TimeoutError:
        raise Failure("adapter", f"there is no answer after {seconds:.0f} s") from None
    if "fails" in answer:
        raise Failure(answer["fails"]["kind"], answer["fails"].get("says") or "", answer["fails"].get("holder"))
    return answer["is"]


class Run:
    """A run of one scenario."""

    def __init__(self, adapter: Adapter, place: servers.Place, patience: float, pushes: bool) -> None:
        self._pushes = pushes
        self._adapter = adapter
        self._place = place
        self._patience = patience
        self._holds: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, concurrent.futures.Future[dict[str, Any]]] = {}

    def run(self, steps: list[dict[str, Any]]) -> None:
        for number, step in enumerate(steps, 1):
            verb, what = next(iter(step.items()))
            begun = time.monotonic()
            try:
                getattr(self, f"do_{verb}")(what, step)
                took = time.monotonic() - begun
                must(step.get("after", 0) <= took <= step.get("within", took), f"it has taken {took:.3f} s")
            except (AssertionError, Failure, OSError, servers.redlatch.CommandError, LookupError, TypeError) as error:
                raise AssertionError(f"step {number}, {json.dumps(step)}: {type(error).__name__}: {error}") from error

    def do_take(self, name: str, step: dict[str, Any]) -> None:
        failure = self._attempt(step, lambda: self._hold(name, self._adapter.do("take", **self._lock(name, step)), step))
        if failure:
            must_say(failure, map(self._filled, step.get("says", [])))
            if "holder" in step:
                self._compare(failure.holder, step["holder"])

    def do_begin(self, name: str, step: dict[str, Any]) -> None:
        self._begun[name] = self._adapter.begin("take", **self._lock(name, step))

    def do_granted(self, name: str, step: dict[str, Any]) -> None:
        self._hold(name, result(self._begun[name], self._patience), step)

    def do_release(self, name: str, step: dict[str, Any]) -> None:
        self._attempt(step, lambda: must_be(self._adapter.do("release", hold=name), step["gives"]))

    def do_extend(self, name: str, step: dict[str, Any]) -> None:
        lease = {"lease": step["lease"]} if "lease" in step else {}
        self._attempt(step, lambda: must_be(self._adapter.do("extend", hold=name, **lease), None))

    def do_leave(self, name: str, step: dict[str, Any]) -> None:
        self._attempt(step, lambda: must_be(self._adapter.do("leave", hold=name, rest=step["rest"]), None))

    def do_transfer(self, name: str, step: dict[str, Any]) -> None:
        words = {word: self._filled(step[word]) for word in ("to", "lease") if word in step}

        def transfer() -> None:
            token = self._holds[name]["handed"] = self._adapter.do("transfer", hold=name, **words)
            must(token > self._holds[name]["token"], f"the new token is {token}")

        failure = self._attempt(step, transfer)
        if failure:
            must_say(failure, step.get("says", []))

    def do_fenced(self, name: str, step: dict[str, Any]) -> None:
        self._attempt(step, lambda: must_be(self._adapter.do("fenced", hold=name), None))

    def do_holds(self, name: str, step: dict[str, Any]) -> None:
        must_be(self._adapter.do("check", hold=name), None)
        left = self._adapter.do("remaining", hold=name)
        must(left is None or left > 0, f"{left} s remain")

    def do_lost(self, name: str, step: dict[str, Any]) -> None:
        reason = result(self._adapter.begin("lost", hold=name), self._patience)
        must(reason in step["reason"], f"the reason is {reason}")
        must_be(self._adapter.do("remaining", hold=name), 0)
        failure = self._attempt({"fails": "lost"}, lambda: self._adapter.do("check", hold=name))
        assert failure
        must_say(failure, step.get("says", []))

    def do_listens(self, name: str, step: dict[str, Any]) -> None:
        if self._pushes:
            return
        # It is subscribed, and has renewed what it held before.
        self._until(["LOCK.WHO", self._holds[name]["key"]], "holders.0.renewals", lambda found: found is not None and found >= 1)

    def do_remaining(self, name: str, step: dict[str, Any]) -> None:
        must(is_within(self._adapter.do("remaining", hold=name), step), "it is not")

    def do_token(self, name: str, step: dict[str, Any]) -> None:
        wanted = self._filled(step["is"])
        token = self._holds[name]["token"]
        must_be(str(token) if isinstance(wanted, str) else token, wanted)

    def do_rise(self, names: list[str], step: dict[str, Any]) -> None:
        tokens = [self._holds[name]["token"] for name in names]
        must(tokens == sorted(set(tokens)), f"they are {tokens}")

    def do_next_token(self, names: list[str], step: dict[str, Any]) -> None:
        first, second = (self._holds[name]["token"] for name in names)
        must_be(second, first + 1)

    def do_locked_by(self, key: str, step: dict[str, Any]) -> None:
        self._compare(self._adapter.do("locked_by", key=key), step["is"])

    def do_server(self, words: list[str], step: dict[str, Any]) -> None:
        answer = self._ask(words)
        if "answers" in step:
            must_be(answer, self._filled(step["answers"]))

    def do_until(self, words: list[str], step: dict[str, Any]) -> None:
        self._until(words, step.get("field"), lambda found: found == step["is"] if "is" in step else is_within(found, step))

    def do_restart(self, what: bool, step: dict[str, Any]) -> None:
        assert self._place.restart
        self._place.restart()

    def _attempt(self, step: dict[str, Any], work: Callable[[], Any]) -> Optional[Failure]:
        """The failure that the step asks for, if it asks for one."""
        wanted = step["fails"].split("-or-") if "fails" in step else []
        try:
            work()
        except Failure as failure:
            if failure.kind in wanted:
                return failure
            raise
        must(not wanted, "it has not failed")
        return None

    def _lock(self, name: str, step: dict[str, Any]) -> dict[str, Any]:
        keys = {word: step[word] for word in KEYS if word in step}
        return {"hold": name, **keys, **{word: self._filled(step[word]) for word in OPTIONS if word in step}}

    def _hold(self, name: str, held: dict[str, Any], step: dict[str, Any]) -> None:
        must_be(held["open"], step.get("opens", False))
        if "gets" in step:
            must_be(held["key"], step["gets"])
        self._holds[name] = held

    def _until(self, words: list[str], field: Optional[str], fits: Callable[[Any], bool]) -> None:
        until = time.monotonic() + self._patience
        found = None
        while True:
            # The server may have been killed.
            with contextlib.suppress(OSError):
                found = part(self._ask(words), field)
                if fits(found):
                    return
            must(time.monotonic() < until, f"it is {found}")
            time.sleep(0.005)

    def _ask(self, words: list[str]) -> Any:
        return self._place.ask(*[self._filled(word) for word in words])

    def _filled(self, value: Any) -> Any:
        """`$a.token` stands for what the hold `a` has, `$a.handed` for the token of its successor; `{"repeat": ...}` for a long text."""
        if isinstance(value, dict) and "repeat" in value:
            return value["repeat"] * value["times"]
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, str):
            for name, held in self._holds.items():
                value = value.replace(f"${name}.token", str(held["token"])).replace(f"${name}.owner", held["owner"])
                value = value.replace(f"${name}.handed", str(held.get("handed")))
        return value

    def _compare(self, holder: Optional[dict[str, Any]], wanted: Optional[dict[str, Any]]) -> None:
        if wanted is None or holder is None:
            return must_be(holder, wanted)
        for name, value in wanted.items():
            found = holder.get(name)
            must_be(str(found) if isinstance(value, str) else found, self._filled(value))


def must(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise AssertionError(otherwise)


def must_be(found: Any, wanted: Any) -> None:
    must(isinstance(found, bool) is isinstance(wanted, bool) and found == wanted, f"it is {found!r}, not {wanted!r}")


def must_say(failure: Failure, texts: Iterable[str]) -> None:
    for text in texts:
        must(text in failure.says, f"{text!r} is not in: {failure.says}")


def is_within(found: Any, step: dict[str, Any]) -> bool:
    return isinstance(found, (int, float)) and step.get("at_least", found) <= found <= step.get("at_most", found)


def part(reply: Any, field: Optional[str]) -> Any:
    """The part of a reply that a path names, as `holders.0.left`; None if there is none."""
    for name in field.split(".") if field else []:
        if isinstance(reply, list):
            reply = reply[int(name)] if int(name) < len(reply) else None
        else:
            reply = reply.get(name) if isinstance(reply, dict) else None
    return reply


@dataclasses.dataclass(frozen=True)
class Job:
    """One scenario with one library on one server."""

    language: str
    command: str
    library: str
    scenario: dict[str, Any]
    server: str
    connection: str
    protocol: int
    #: The product or the peer.
    detail: str = ""
    #: Losses come on the connection that has taken the lock.
    pushes: bool = False

    def __str__(self) -> str:
        where = " ".join(filter(None, [self.server, self.detail, self.connection, f"RESP{self.protocol}"]))
        return f"{self.scenario['name']}, {self.language} {self.library}, {where}"

    @property
    def takes_nodes(self) -> bool:
        return self.server == "redlatch-replicated" or (self.server, self.connection) == ("redlatch", "sentinel")


def jobs_of(language: str, command: str, library: dict[str, Any]) -> Iterator[Job]:
    """All that a library must pass. What it does not connect to is left out."""
    ways, protocols = library["connections"], library["protocols"]
    unix = "unix" if "unix" in ways else "single"
    for scenario in SCENARIOS:
        on, by = scenario["servers"], scenario.get("connections", [])
        rows = [("redlatch", "single", protocol, "") for protocol in protocols if "redlatch" in on]
        rows += [("hostile", "single", protocol, peer) for protocol in protocols for peer in scenario.get("peers", [])]
        rows += [("plain", "single", protocols[0], "redis"), ("plain", unix, protocols[-1], "valkey")]
        rows += [("redlatch-with-journal", unix, protocols[-1], ""), ("redlatch-cluster", "cluster", protocols[0], "")]
        rows += [("redlatch-replicated", "sentinel", protocols[0], "")]
        rows += [(server, way, protocols[-1], "") for server in ("redlatch",) for way in ("cluster", "sentinel") if way in by]
        rows += [("plain", "sentinel", protocols[-1], "redis")] if "sentinel" in by else []
        for server, way, protocol, detail in rows:
            if server in on and way in ways:
                pushes = library.get("pushes", False)
                yield Job(language, command, library["name"], scenario, server, way, protocol, detail, pushes)


class Report:
    """One line for each job, and what became of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, outcome: str, job: Job, text: str) -> None:
        with self._lock:
            self.counts[outcome] += 1
            print(f"{outcome}: {job}: {text}", flush=True)


class Worker:
    """Does one job after the other. The process of an adapter is used again, unless a job has failed or the next one has another."""

    def __init__(self, shared: servers.Servers, patience: float = PATIENCE_SECONDS) -> None:
        self._shared = shared
        self._patience = patience
        self._adapter: Optional[Adapter] = None
        self._command = ""

    def do(self, job: Job) -> None:
        """Raises an `AssertionError` that says how the job has failed, or `servers.Missing`."""
        try:
            with self._shared.place(job.server, job.connection, job.detail) as place:
                self._do(job, place)
        except servers.Missing:
            raise
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if self._adapter:
            self._adapter.end()
            self._adapter = None

    def _do(self, job: Job, place: servers.Place) -> None:
        if job.command != self._command:
            self.end()
        adapter = self._adapter = self._adapter or Adapter(job.command)
        self._command = job.command
        client = job.scenario.get("client", {})
        more = {word: client[word] for word in ("reply_timeout", "on_unavailable") if word in client}
        budget = client.get("budget", BUDGET_SECONDS)
        which = {"library": job.library, "connection": job.connection, "protocol": job.protocol}
        adapter.do("open", **which, **place.where, budget=budget, **more)
        if "budget" in client and job.server != "hostile":
            # The first connection has no part in a small budget. One that is too slow is not what the scenario is about.
            for _ in range(3):
                with contextlib.suppress(Failure):
                    adapter.do("locked_by", key="k")
        Run(adapter, place, self._patience, job.pushes).run(job.scenario["steps"])
        adapter.do("close")


def run_all(jobs: list[Job], shared: servers.Servers, count: int, report: Report) -> None:
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)

    def work() -> None:
        worker = Worker(shared)
        with contextlib.suppress(queue.Empty):
            while True:
                run_one(worker, todo.get_nowait(), report)
        worker.end()

    threads = [threading.Thread(target=work) for _ in range(min(count, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_one(worker: Worker, job: Job, report: Report) -> None:
    begun = time.monotonic()
    try:
        worker.do(job)
    except servers.Missing as missing:
        report.add("failed" if "REDLATCH_REQUIRE_CLIENTS" in os.environ else "skipped", job, str(missing))
    except Exception as error:
        report.add("failed", job, f"{error if isinstance(error, AssertionError) else repr(error)}")
    else:
        report.add("passed", job, f"{time.monotonic() - begun:.2f} s")


def find_lies(shared: servers.Servers) -> None:
    """Each lie of `broken.py` must be noticed, in the scenario that is about it, which passes without one. Raises an `AssertionError`."""
    by_name = {scenario["name"]: scenario for scenario in SCENARIOS}

    def is_noticed(lie: str, name: str) -> bool:
        """On a slow machine a client that gives up early may be late enough: each lie has three tries."""
        return any(is_noticed_once(lie, name) for _ in range(1 if lie == broken.HONEST else 3))

    def is_noticed_once(lie: str, name: str) -> bool:
        command = shlex.join([sys.executable, str(HERE / "broken.py"), lie])
        worker = Worker(shared, patience=PATIENCE_SECONDS if lie == broken.HONEST else broken.PATIENCE_SECONDS)
        try:
            worker.do(Job("broken", command, lie, by_name[name], "redlatch", "single", 3))
        except AssertionError as noticed:
            if lie == broken.HONEST:
                raise AssertionError(f"{name} fails without a lie: {noticed}") from noticed
            return True
        except Failure:
            return True
        finally:
            worker.end()
        return False

    names = sorted(set(broken.LIES.values()))
    pairs = [(broken.HONEST, name) for name in names] + list(broken.LIES.items())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for (lie, name), noticed in zip(pairs, pool.map(lambda pair: is_noticed(*pair), pairs)):
            must(noticed is (lie != broken.HONEST), f"nobody notices the lie '{lie}' in {name}")
    print(f"noticed: {len(broken.LIES)} lies, in {len(names)} scenarios that pass without one", flush=True)


def check_scenarios() -> None:
    """Raises an `AssertionError` for a scenario that is not run as it says."""
    names = [scenario["name"] for scenario in SCENARIOS]
    must(len(set(names)) == len(names) >= 40, "names are unique, and none is lost")
    for scenario in SCENARIOS:
        name = scenario["name"]
        must(bool(scenario["steps"]) and bool(scenario["servers"]), f"{name}: without steps or servers")
        must(set(scenario["servers"]) <= SERVERS, f"{name}: unknown servers")
        must(set(scenario.get("connections", [])) <= CONNECTIONS, f"{name}: unknown connections")
        for step in scenario["steps"]:
            verb, *words = step
            must(verb in WORDS and set(words) <= WORDS[verb] | BOUNDS, f"{name}: unknown words in {step}")


def libraries_of(adapters: list[str]) -> Iterator[Job]:
    """The jobs of all libraries of all adapters."""
    for adapter in adapters:
        language, _, command = adapter.partition("=")
        process = Adapter(command)
        try:
            libraries = process.do("libraries")
        finally:
            process.end()
        for library in libraries:
            yield from jobs_of(language, command, library)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Does the scenarios of conformance.json with lock clients.")
    adapter = parser.add_argument("--adapter", action="append", required=True, metavar="LANGUAGE=COMMAND")
    adapter.help = "a program that calls a client"
    parser.add_argument("--nodes", action="store_true", help="only those with nodes on etcd; without it, all others")
    parser.add_argument("--language", help="only this one")
    parser.add_argument("--library", default="", help="only those with this text in their name")
    parser.add_argument("--scenario", default="", help="only those with this text in their name")
    parser.add_argument("--server", help="only this one")
    parser.add_argument("--jobs", type=int, help="how many at once [default: 6; 2 with nodes]")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    check_scenarios()
    adapters = [each for each in options.adapter if options.language in (None, each.partition("=")[0])]
    jobs = [
        job
        for job in libraries_of(adapters)
        if job.takes_nodes == options.nodes
        and options.library in job.library
        and options.scenario in job.scenario["name"]
        and options.server in (None, job.server)
    ]
    report = Report()
    with servers.Servers() as shared:
        find_lies(shared)
        run_all(jobs, shared, options.jobs or (2 if options.nodes else 6), report)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(report.counts.items())) or "there is nothing to run")
    is_chosen = options.library or options.scenario or options.server or options.language
    return 1 if report.counts["failed"] or is_chosen and not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
