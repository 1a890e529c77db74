#!/usr/bin/env python3
"""An adapter that tells one lie, or none. A runner that does not notice each of them proves nothing.

    broken.py LIE

Owns    a small client: exclusive locks on one server, without renewal. What the server refuses for a moment is asked again.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from typing import Any, Optional

HONEST = "none"
# Each lie, and the scenario that is about it.
LIES = {
    "is granted what another one holds": "refused_with_who",
    "fails as something else": "refused_with_who",
    "releases what it does not hold": "released_twice",
    "nobody holds it": "locked_by",
    "tokens stand still": "wait_in_order",
    "tells no loss": "not_renewed",
    "tells another reason": "not_renewed",
    "is held after its loss": "not_renewed",
    "its deadline is too late": "deadline_counts_from_the_send",
    "gives up before its wait has passed": "a_wait_lasts_while_the_server_is_away",
    "opens what is refused": "an_answer_opens_nothing",
    "stops at its deadline alone": "stopped_before_the_deadline",
    "releases what it has lost": "stopped_before_the_deadline",
    "names another key": "any_of",
    "holds what it has handed over": "handed_over_to_nobody_who_waits",
    "hands nothing over": "handed_over_to_nobody_who_waits",
    "ends": "take_and_release",
}
# A call without a wait is tried as often.
TRIES_MIN = 3
# How long the runner waits for what a lie leaves out: longer than the lease of a scenario that tells a loss.
PATIENCE_SECONDS = 3.0


class Failure(Exception):
    def __init__(self, kind: str, says: str, holder: Any = None) -> None:
        super().__init__(says)
        self.fails = {"kind": kind, "says": says, "holder": holder}


class Adapter:
    def __init__(self, lie: str) -> None:
        self._lie = lie
        self._holds: dict[str, dict[str, Any]] = {}
        self._output = threading.Lock()

    def answer(self, request: dict[str, Any]) -> None:
        id, verb = request.pop("id"), request.pop("do")
        try:
            answer = {"is": getattr(self, f"do_{verb}")(**request)}
        except Failure as failure:
            answer = {"fails": failure.fails}
        with self._output:
            print(json.dumps({"id": id, **answer}), flush=True)

    def do_libraries(self) -> list[dict[str, Any]]:
        return [{"name": self._lie, "protocols": [3], "connections": ["single"]}]

    def do_open(self, host: str, port: int, password: str, **_: Any) -> None:
        from servers import connect

        self._ask = lambda *words: connect(port, password).call(*words)

    def do_close(self) -> None:
        self._holds.clear()

    def do_take(
        self,
        hold: str,
        key: str = "",
        any_of: Optional[list[str]] = None,
        owner: Optional[str] = None,
        wait: float = 0,
        lease: float = 30,
        renew: bool = True,
        stop_before: float = 0,
    ) -> Any:
        owner = owner or secrets.token_hex(16)
        head = ["LOCK.MACQUIRE", len(any_of), *any_of, owner, "ANY", 1] if any_of else ["LOCK.ACQUIRE", key, owner]
        words = [*head, "LEASE", round(lease * 1000), *(["WAIT", round(wait * 1000)] if wait else [])]
        sent = time.monotonic()
        try:
            grant = self._granted(words, 0 if self._lies("gives up before its wait has passed") else sent + wait)
        except Failure:
            if not self._lies("opens what is refused"):
                raise
            return {"token": None, "owner": owner, "open": True, "key": key}
        if grant is None and self._lies("is granted what another one holds"):
            grant = {"token": 1, "waited": 0}
        if grant is None:
            raise self._refusal(key)
        if any_of:
            [[key, grant["token"]]] = grant["locks"].items()
        begun = sent + grant.get("waited", 0) / 1000 + (lease if self._lies("its deadline is too late") else 0)
        token = 1 if self._lies("tokens stand still") else grant["token"]
        stop_before = 0 if self._lies("stops at its deadline alone") else stop_before
        deadline = begun + lease - stop_before
        self._holds[hold] = {"key": key, "owner": owner, "token": token, "deadline": deadline, "why": "unrenewed"}
        if self._lies("releases what it has lost"):
            threading.Timer(self._left(hold), self.do_release, [hold]).start()
        got = any_of[-1] if any_of and self._lies("names another key") else key
        return {"token": token, "owner": owner, "open": False, "key": got}

    def do_release(self, hold: str) -> bool:
        if self._lies("ends"):
            os._exit(1)
        held = self._holds[hold]
        held["deadline"] = 0
        return self._ask("LOCK.RELEASE", held["key"], held["owner"]) == 1 or self._lies("releases what it does not hold")

    def do_transfer(self, hold: str, to: str, lease: Optional[float] = None) -> int:
        from servers import redlatch

        held = self._holds[hold]
        if self._lies("hands nothing over"):
            return int(held["token"]) + 1
        words = ["LOCK.TRANSFER", held["key"], held["owner"], "TO", to, *(["LEASE", round(lease * 1000)] if lease else [])]
        try:
            token = int(self._ask(*words)["token"])
        except redlatch.CommandError as refused:
            raise Failure("refused", str(refused)) from None
        if not self._lies("holds what it has handed over"):
            held.update(deadline=0, why="transferred")
        return token

    def do_extend(self, hold: str) -> None:
        self.do_check(hold)

    def do_check(self, hold: str) -> None:
        if not self._left(hold) and not self._lies("is held after its loss"):
            raise Failure("lost", "it is lost")

    def do_remaining(self, hold: str) -> float:
        return self._left(hold)

    def do_lost(self, hold: str) -> str:
        if self._lies("tells no loss"):
            threading.Event().wait()
        time.sleep(self._left(hold))
        return "broken" if self._lies("tells another reason") else self._holds[hold]["why"]

    def do_locked_by(self, key: str) -> Any:
        found = self._ask("LOCK.WHO", key)
        if not found or self._lies("nobody holds it"):
            return None
        return {"key": key, "owner": found["holders"][0]["owner"], "token": found["holders"][0]["token"]}

    def _granted(self, words: list[Any], until: float) -> Any:
        from servers import redlatch

        tries = 0
        while True:
            try:
                return self._ask(*words)
            except (redlatch.CommandError, OSError) as failed:
                tries += 1
                if time.monotonic() > until and tries >= TRIES_MIN:
                    kind = "unreachable" if isinstance(failed, OSError) else "refused"
                    raise Failure(kind, str(failed)) from None
            time.sleep(0.01)

    def _refusal(self, key: str) -> Failure:
        holder = self.do_locked_by(key)
        kind = "unreachable" if self._lies("fails as something else") else "held"
        return Failure(kind, f"{key} is held by {holder}", holder)

    def _left(self, hold: str) -> float:
        return max(0.0, self._holds[hold]["deadline"] - time.monotonic())

    def _lies(self, lie: str) -> bool:
        assert lie in LIES, lie
        return self._lie == lie


def main() -> None:
    adapter = Adapter(sys.argv[1])
    for line in sys.stdin:
        threading.Thread(target=adapter.answer, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
