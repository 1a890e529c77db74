#!/usr/bin/env python3
"""Runs the long checks, and adds what they have counted to benches/history.jsonl, a line for each run.

    .ci/run nightly [HOURS [STEP ...]]

The hours, 8 unless said otherwise, are shared out to the steps. A step that repeats its checks with new seeds does so for
its share (NIGHTLY_SECONDS); another one takes what it takes. NIGHTLY_SEED repeats the run of that seed. A step prints what it
counts as `tally: {"operations": 12}`, anywhere in a line.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HISTORY = pathlib.Path("benches/history.jsonl")
# What all steps together have done.
SUMS = ["operations", "seeds", "inputs", "faults", "violations"]
TALLY = re.compile(r"tally: (\{.*\})")


def run(step, share, seed):
    """Runs a step; returns what it has counted."""
    counted, begun = {}, time.monotonic()
    environment = os.environ | {"NIGHTLY_SECONDS": str(share), "NIGHTLY_SEED": str(seed)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(["bash", ".ci/run", step], env=environment, **pipes) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if tally := TALLY.search(line):
                for name, figure in json.loads(tally[1]).items():
                    counted[name] = counted[name] + figure if name in counted else figure
    return {"passed": process.returncode == 0, "seconds": round(time.monotonic() - begun), **counted}


def main():
    hours, *steps = sys.argv[1:]
    seed = int(os.environ.get("NIGHTLY_SEED", time.time()))
    share = int(float(hours) * 3600 / len(steps))
    revision = subprocess.check_output(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], text=True)
    print(f"nightly: {share} seconds a step, NIGHTLY_SEED={seed}", flush=True)
    parts = {step: run(step, share, seed) for step in steps}
    figures = {name: sum(part.get(name, 0) for part in parts.values()) for name in SUMS}
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    line = json.dumps({"revision": revision.strip(), "date": date, "seed": seed, **figures, "parts": parts})
    with HISTORY.open("a") as history:
        print(line, file=history)
    print(line)
    failed = [step for step, part in parts.items() if not part["passed"]]
    return f"failed: {' '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
