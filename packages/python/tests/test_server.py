"""The process: its start, its end, where its program is, what it says when it cannot start."""

import gc
import contextlib
import os
import socket
import subprocess
import sys
import time

import pytest

import redlatch
from redlatch import Server, StartError


def test_a_server_runs_inside_of_its_block(connect):
    with Server() as server:
        assert connect(server).ping()
        assert server.ports == [server.port] and server.ready["pid"] == server.pid
        process = server._process
    assert process.returncode == 0
    with pytest.raises(ConnectionError):
        Server.attach({"port": 1, "ports": [1], "url": "redis://127.0.0.1:1"}).call("PING")


def test_servers_do_not_meet(connect):
    with Server() as first, Server() as second:
        connect(first).set("key", "value")
        assert connect(second).get("key") is None


def test_a_start_twice_and_a_stop_twice_are_one():
    server = Server()
    try:
        pid = server.start().pid
        assert server.start().pid == pid
    finally:
        server.stop()
        server.stop()
    assert server.ready == {}


def test_a_server_that_was_stopped_can_start_again():
    server = Server()
    first = server.start().pid
    server.stop()
    with server:
        assert server.pid != first and server.call("PING") == "PONG"


def test_a_server_that_is_forgotten_ends():
    server = Server().start()
    process = server._process
    del server
    gc.collect()
    assert process.wait(30) == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_server_ends_with_its_program(is_killed):
    program = (
        "import redlatch, sys; server = redlatch.Server('--max-lifetime', '60s').start();"
        "print(server.port, flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)
    connection = socket.create_connection(("127.0.0.1", int(parent.stdout.readline())))
    began = time.monotonic()
    if is_killed:
        parent.kill()
    parent.communicate()
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b"", "the server has ended"
    assert time.monotonic() - began < 30, "it ended for another reason"
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--databases", "0"], "databases '0': must be between 1 and"),
        (["--no-such-flag"], "no-such-flag"),
        (["--unixsocket", "/no/such/folder/socket"], "/no/such/folder/socket"),
    ],
)
def test_a_server_that_cannot_start_says_why(arguments, reason):
    with pytest.raises(StartError, match=reason) as caught:
        Server(*arguments).start()
    assert "\n" not in str(caught.value)


def test_settings_of_the_environment_are_meant_for_other_servers(monkeypatch, connect):
    monkeypatch.setenv("REDLATCH_REQUIREPASS", "secret")
    with Server() as server:
        assert connect(server).ping()


def test_a_program_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("REDLATCH_BINARY", "/no/such/redlatch")
    with pytest.raises(StartError, match="/no/such/redlatch: No such file"):
        Server().start()


def test_a_program_of_another_processor_is_told(monkeypatch, tmp_path):
    program = tmp_path / "größer als redlatch"
    monkeypatch.setenv("REDLATCH_BINARY", str(program))
    # An ELF file for 32-bit ARM.
    program.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(11) + b"\x28" + bytes(45))
    with pytest.raises(StartError, match="this user may not execute it"):
        Server().start()
    program.chmod(0o755)
    with pytest.raises(StartError, match="another system or processor. Install the wheel for this one"):
        Server().start()


def test_a_program_that_is_another_one_is_named(monkeypatch):
    monkeypatch.setenv("REDLATCH_BINARY", "/bin/echo")
    with pytest.raises(StartError, match="'/bin/echo' is not redlatch: it said '--port auto"):
        Server().start()


def test_the_program_is_the_one_that_is_named_then_the_one_beside_python_then_that_of_the_path(monkeypatch, tmp_path):
    program = tmp_path / "redlatch"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("REDLATCH_BINARY", "/named/redlatch")
    assert redlatch.find_binary() == "/named/redlatch"
    monkeypatch.delenv("REDLATCH_BINARY")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert redlatch.find_binary() == str(program)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr("sysconfig.get_path", lambda *_: "/nowhere")
    with pytest.raises(StartError, match="there is no program 'redlatch'"):
        redlatch.find_binary()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redlatch.find_binary() == str(program)


def test_a_fork_does_not_end_the_server_of_its_parent(connect):
    with Server() as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert connect(server).ping()


def test_a_server_of_another_process_is_not_stopped(connect):
    with Server() as server:
        other = Server.attach(server.ready)
        assert other.call("PING") == "PONG"
        other.stop()
        assert connect(server).ping()

