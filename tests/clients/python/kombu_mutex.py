"""kombu: the mutex of celery's Redis transport, and the queues that it guards."""

import time
from contextlib import ExitStack

import redis
from kombu import Connection, Exchange, Producer, Queue
from kombu.transport.redis import Mutex, MutexHeld

from checks import HOST, LEASE_MS, PORT, Stopwatch, check, done, race, refused

URL = f"redis://{HOST}:{PORT}/0"
client = redis.Redis(host=HOST, port=PORT, decode_responses=True)


def enter(name="stock"):
    with Mutex(client, name, 10):
        pass


with Mutex(client, "stock", 10):
    check("acquire", 0 < client.pttl("stock") <= 10_000)
    token = client.get("stock")
    check("contended acquire is refused", refused(MutexHeld, enter))
    check("the refused one released nothing", client.get("stock") == token)
check("release", client.exists("stock") == 0)

watch = Stopwatch()
lapsed = ExitStack()
lapsed.enter_context(Mutex(client, "lease", LEASE_MS / 1000))
while refused(MutexHeld, lambda: enter("lease")):
    time.sleep(0.005)
check("expiry hands over, not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
with Mutex(client, "lease", 10):
    heir = client.get("lease")
    lapsed.close()
    check("the lapsed holder cannot release", client.get("lease") == heir)


def round_of(critical):
    while True:
        try:
            with Mutex(client, "race", 10):
                return critical()
        except MutexHeld:
            time.sleep(0.003)


race(round_of)

orders = Queue("orders", Exchange("shop"), "orders")


def connect():
    # What is not acknowledged within half a second is delivered again.
    return Connection(URL, transport_options={"visibility_timeout": 0.5, "unacked_restore_limit": 1_000})


def drain(connection, channel, count, keep=lambda message: message.ack()):
    """Consumes until `count` messages have come."""
    got = []

    def take(body, message):
        got.append(body)
        keep(message)

    with connection.Consumer([orders], callbacks=[take], channel=channel):
        while len(got) < count:
            connection.drain_events(timeout=20)
    return got


with connect() as connection:
    orders(connection.default_channel).declare()
    producer = Producer(connection.channel(), orders.exchange, "orders")
    for number in range(3):
        producer.publish({"number": number})
    check("messages wait", client.llen("orders") == 3)
    numbers = [body["number"] for body in drain(connection, connection.channel(), 3)]
    check("messages come in order", numbers == [0, 1, 2], numbers)
    check("what is acknowledged is gone", client.hlen("unacked") == client.zcard("unacked_index") == 0)
    producer.publish({"number": 7}, priority=0)
    producer.publish({"number": 8}, priority=9)
    numbers = [body["number"] for body in drain(connection, connection.channel(), 2)]
    check("by rank", numbers == [7, 8], numbers)
    producer.publish({"number": 9})
    channel = connection.channel()
    kept = []
    drain(connection, channel, 1, keep=kept.append)
    check("what is not acknowledged is kept", client.hlen("unacked") == client.zcard("unacked_index") == 1)
    watch = Stopwatch()
    while client.llen("orders") == 0:
        channel.qos.restore_visible(num=10)
        time.sleep(0.01)
    check("and restored, once, under the mutex", client.llen("orders") == 1 and client.hlen("unacked") == 0)
    check("when its time is over", watch.ms() >= 300, watch.ms())
    channel.qos._delivered.clear()
    check("to be consumed again", drain(connection, connection.channel(), 1) == [{"number": 9}])
    kept.clear()

news = Exchange("news", type="fanout")
with connect() as connection:
    got = []
    inbox = Queue("inbox", news)
    with connection.Consumer([inbox], callbacks=[lambda body, message: (got.append(body), message.ack())]):
        # It subscribes when it first looks for events.
        while client.pubsub_numpat() == 0:
            refused(OSError, lambda: connection.drain_events(timeout=0.05))
        Producer(connection.channel()).publish("flash", exchange=news)
        while not got:
            connection.drain_events(timeout=20)
    check("a fanout reaches who subscribed", got == ["flash"])
done()
