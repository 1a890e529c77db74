"""A plugin of pytest: a process that a test has forked, and that comes back to pytest, ends there, and runs no further tests."""

import os

import pytest

PYTEST = os.getpid()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport():
    if os.getpid() != PYTEST:
        os._exit(1)
