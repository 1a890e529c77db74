"""A job on one of four GPUs: the first that is free."""

import os
import subprocess

from redlatch_client import Locks

GPUS = ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]


def run_on_a_gpu(locks: Locks, command: list[str]) -> None:
    with locks.any_of(GPUS, wait=3600) as held:
        number = held.key.removeprefix("gpu:")
        subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": number}, check=True)
