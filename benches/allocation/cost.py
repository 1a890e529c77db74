#!/usr/bin/env python3
"""What requests for any of several locks cost: the figures of docs/waiting.md. Linux only; standard library only.

Usage: cost.py REDLATCH REDIS-SERVER WAITERS CYCLES, for example cost.py target/release/redlatch redis-server 10000 20000
"""

import collections
import pathlib
import resource
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from beside.cost import observed  # noqa: E402


def connect(path):
    (link := socket.socket(socket.AF_UNIX)).connect(path)
    return link.makefile("rwb")


def send(link, *words):
    link.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
    link.flush()


def reply(link):
    kind, value = (line := link.readline().strip().decode())[:1], line[1:]
    assert kind and kind in "*$:+", line
    if kind == "*":
        return [reply(link) for _ in range(int(value))]
    return link.read(int(value) + 2)[:-2].decode() if kind == "$" else value


def ask(link, *words):
    send(link, *words)
    return reply(link)


def take(link, owner, names, any_of, *options):
    send(link, "LOCK.MACQUIRE", f"{len(names)}", *names, owner, "ANY", f"{any_of}", "JUSTTOKEN", "LEASE", "3600000", *options)


def info(link, field):
    return int(ask(link, "INFO").split(f"\n{field}:")[1].split()[0])


def cpu_us(server):
    return sum(int(stat.read_text().split()[0]) for stat in pathlib.Path(f"/proc/{server.pid}/task").glob("*/schedstat")) / 1_000


def waiting(program, names, count, cycles, batch=5):
    """So many requests wait for any of these locks, and each release serves the first. It then waits at the end."""
    with observed(program) as (server, path):
        control, holder, queue, spent = connect(path), (connect(path), "all"), collections.deque(), 0
        ask(control, "CONFIG", "SET", "maxclients", f"{count + 100}")
        take(*holder, names, len(names))
        key, links, used = reply(holder[0])[0], [connect(path) for _ in range(count)], [info(control, "used_memory")]
        for done in range(0, cycles, batch):
            for link in links:
                queue.append((link, f"owner-{done}-{len(queue)}"))
                take(*queue[-1], names, 1, "WAIT", "3600000")
                while info(control, "blocked_clients") < len(queue):
                    pass
            used, links, before = [*used, info(control, "used_memory")], [], cpu_us(server)
            for _ in range(batch):
                assert ask(holder[0], "LOCK.RELEASE", key, holder[1]) == "1"
                links, holder = [*links, holder[0]], queue.popleft()
                key = reply(holder[0])[0]
            spent += cpu_us(server) - before
        print(f"{count} wait for any of {len(names)}: {(used[1] - used[0]) / 1e6:.2f} MB; a release: {spent / (done + batch):.1f} us")


def main(redlatch, redis, waiters, cycles):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    names = [f"lock:{number}" for number in range(1_000)]
    for size in [10, 100, 1_000]:
        waiting(redlatch, names[:size], 10, cycles)
        waiting(redlatch, names[:size], waiters, cycles)
    for program, is_list in [(redlatch, False), (redis, True)]:
        with observed(program) as (server, path):
            link = connect(path)
            before = ask(link, "RPUSH", "free", *names[:10]) and cpu_us(server)
            for _ in range(cycles):
                send(link, "BLPOP", "free", "0") if is_list else take(link, "me", names[:10], 1)
                ask(link, *(["RPUSH", "free", reply(link)[1]] if is_list else ["LOCK.RELEASE", reply(link)[0], "me"]))
            print(f"{'BLPOP and RPUSH' if is_list else 'any of 10 and LOCK.RELEASE'}: {(cpu_us(server) - before) / cycles:.1f} us")


main(*sys.argv[1:3], *map(int, sys.argv[3:]))
