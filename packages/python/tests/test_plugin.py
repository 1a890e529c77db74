"""The pytest plugin, in runs of pytest inside of pytest."""

import json
import re

import pytest

FAILING = """
    import redis

    def test_that_fails(redlatch):
        client = redis.Redis(**redlatch.kwargs)
        client.set("lock:stock", "worker-1", nx=True, px=30_000)
        redlatch.faults.drop_reply(command="SET", key="no-such-lock")
        assert False, "as it should"
"""


def test_every_test_has_a_namespace_of_its_own(pytester):
    pytester.makepyfile(
        """
        import pytest, redis

        @pytest.mark.parametrize("number", range(3))
        def test_nothing_is_left(redlatch, redlatch_server, number):
            client = redis.Redis.from_url(redlatch.url)
            assert client.dbsize() == 0
            client.set("key", number)
            names = [space["name"] for space in redlatch_server.namespaces()]
            assert redlatch.name in names and len(names) <= 2
            assert redis.Redis(**redlatch.kwargs).get("key") == b"%d" % number
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_marker_freezes_the_clock_and_opens_nodes(pytester):
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.redlatch(freeze=True)

        def test_frozen(redlatch):
            assert redlatch.clock.show()["mode"] == "frozen" and len(redlatch.nodes) == 1

        @pytest.mark.redlatch(nodes=3)
        def test_nodes(redlatch):
            assert redlatch.clock.show()["mode"] == "frozen" and len(set(redlatch.urls)) == 3

        @pytest.mark.redlatch(freeze=False)
        def test_running(redlatch):
            assert redlatch.clock.show()["mode"] == "running"
        """
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)


def test_a_marker_that_says_something_else_is_an_error(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.redlatch(frozen=True)
        def test_it(redlatch):
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the marker redlatch takes freeze and nodes, not frozen*"])


def test_a_failed_test_shows_its_timeline_and_faults_that_never_hit(pytester):
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("--redlatch-artifacts", "artifacts/of this run")
    result.assert_outcomes(failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*as it should*",
            "*redlatch timeline*",
            "*lock:stock*",
            "*redlatch faults*",
            "fault * never hit: *no-such-lock*",
            "*redlatch artifacts*",
        ]
    )
    (page,) = (pytester.path / "artifacts" / "of this run").iterdir()
    assert page.name.endswith("test_that_fails.html")
    text = page.read_text()
    assert "lock:stock" in text and not re.search(r'(?:src|href)="https?:', text)


def test_a_test_that_passes_shows_nothing_but_warns_of_a_fault_that_never_hit(pytester):
    pytester.makepyfile(FAILING.replace("assert False", "assert True"))
    result = pytester.runpytest_subprocess("--redlatch-artifacts", "artifacts")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.no_fnmatch_line("*redlatch timeline*")
    result.stdout.fnmatch_lines(["*RedlatchWarning: fault * never hit*"])
    assert not (pytester.path / "artifacts").exists()


def test_workers_share_one_server_that_ends_with_the_run(pytester):
    pytester.makepyfile(
        """
        import json, os, pathlib, pytest, redis

        @pytest.mark.parametrize("number", range(8))
        def test_it(redlatch, redlatch_server, number):
            client = redis.Redis.from_url(redlatch.url)
            assert client.dbsize() == 0 and client.set("key", number, nx=True)
            redlatch.clock.freeze()
            client.pexpire("key", 30_000)
            redlatch.clock.advance(31)
            assert client.get("key") is None
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"told-{number}").write_text(json.dumps([worker, redlatch_server.pid]))
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "load")
    result.assert_outcomes(passed=8)
    told = [json.loads(path.read_text()) for path in pytester.path.glob("told-*")]
    assert {worker for worker, _ in told} == {"gw0", "gw1"}
    (server,) = {pid for _, pid in told}
    assert not is_alive(server)


def test_a_failed_test_of_a_worker_shows_its_timeline(pytester):
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("-n", "2", "--redlatch-artifacts", "artifacts")
    result.assert_outcomes(failed=1, warnings=1)
    result.stdout.fnmatch_lines(["*redlatch timeline*", "*lock:stock*"])
    assert len(list((pytester.path / "artifacts").iterdir())) == 1


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_without_a_server_only_the_tests_that_use_it_fail(pytester, monkeypatch, workers):
    monkeypatch.setenv("REDLATCH_BINARY", "/no/such/redlatch")
    pytester.makepyfile("def test_with(redlatch): pass\ndef test_without(): pass")
    result = pytester.runpytest_subprocess(*workers)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*/no/such/redlatch*"])


def test_asyncio_has_the_same_namespace(pytester):
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    pytester.makepyfile(
        """
        import redis.asyncio

        async def test_it(redlatch, redlatch_aio):
            assert redlatch_aio.url == redlatch.url
            await redlatch_aio.clock.freeze()
            assert redlatch.clock.show()["mode"] == "frozen"
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def is_alive(pid):
    import os

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
