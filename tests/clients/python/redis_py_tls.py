"""redis-py through TLS, on a server that asks for certificates."""

import os
import threading

import redis
from redis.exceptions import ConnectionError, LockNotOwnedError, RedisError

from checks import HOST, check, done, race_under, refused

TLS_PORT = int(os.environ["REDLATCH_TLS_PORT"])
FILES = os.environ["REDLATCH_TLS_FILES"]
URL = f"rediss://{HOST}:{TLS_PORT}"


def file(name):
    return os.path.join(FILES, name)


def connect(authority="authority.crt", certificate="client", **options):
    if certificate:
        options |= {"ssl_certfile": file(f"{certificate}.crt"), "ssl_keyfile": file(f"{certificate}.key")}
    return redis.Redis.from_url(URL, ssl_ca_certs=file(authority), ssl_check_hostname=True, **options)


client = connect()
check("ping", client.ping())
check("RESP3", connect(protocol=3).ping())
check("another authority is believed", refused(RedisError, connect(authority="stranger.crt").ping))
check("without a certificate", refused(RedisError, connect(certificate=None).ping))
check("plain words", refused(ConnectionError, redis.Redis(host=HOST, port=TLS_PORT).ping))

first, second = client.lock("stock", timeout=10), client.lock("stock", timeout=10)
check("acquire", first.acquire())
check("contended acquire is refused", not second.acquire(blocking=False))
second.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, second.release))
first.release()
check("release", client.exists("stock") == 0)

value = os.urandom(3 << 20)
client.set("large", value)
check("a large value goes and comes", client.get("large") == value)

pipeline = client.pipeline(transaction=False)
for _ in range(5000):
    pipeline.incr("fence")
check("a pipeline is answered in order", pipeline.execute() == list(range(1, 5001)))

timer = threading.Timer(0.05, lambda: client.rpush("list", "item"))
timer.start()
check("BLPOP waits for an item", connect().blpop("list", timeout=10) == (b"list", b"item"))
timer.join()

listener = connect().pubsub(ignore_subscribe_messages=True)
listener.subscribe("news")
listener.get_message(timeout=5)
client.publish("news", "hello")
message = listener.get_message(timeout=5)
check("a message is pushed", message and message["data"] == b"hello", message)
race_under(lambda: connect().lock("till", timeout=10, sleep=0.005))
done()
