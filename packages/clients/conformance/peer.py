#!/usr/bin/env python3
"""Servers that serve nobody, for the tests of the lock clients: prints their ports as JSON, and ends with its standard input.

    peer.py PORT     of a server on 127.0.0.1 that serves what `stopped` passes on

refused     refuses connections
dropped     drops packets: its queue of connections is full
silent      accepts connections, and says nothing
stopped     passes on what comes, until a request names a LOCK command: its answer stops in the middle
"""

import json
import socket
import sys
import threading

kept = []


def bound():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    kept.append(listener)
    return listener


def dropped():
    listener = bound()
    listener.listen(0)
    for _ in range(QUEUE_MAX):
        waiting = socket.socket()
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
        kept.append(waiting)
    return listener


def accepting(serve):
    listener = bound()
    listener.listen()

    def accept():
        while True:
            connection, _ = listener.accept()
            kept.append(connection)
            serve(connection)

    threading.Thread(target=accept, daemon=True).start()
    return listener


def pass_on(client):
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

    def requests():
        while request := received(client):
            if b"LOCK." in request.upper():
                client.sendall(b"*2\r\n$5\r\ntok")
                return
            server.sendall(request)

    def answers():
        while answer := received(server):
            client.sendall(answer)

    for work in (requests, answers):
        threading.Thread(target=work, daemon=True).start()


def received(connection):
    try:
        return connection.recv(65536)
    except OSError:
        return b""


#: More connections than a queue of length 0 takes.
QUEUE_MAX = 3
peers = {"refused": bound(), "dropped": dropped(), "silent": accepting(lambda connection: None), "stopped": accepting(pass_on)}
print(json.dumps({name: listener.getsockname()[1] for name, listener in peers.items()}), flush=True)
sys.stdin.read()
