"""redis-py as a user with a password who may touch nothing but locks."""

import redis
from redis.exceptions import AuthenticationError, LockNotOwnedError, NoPermissionError

from checks import HOST, PORT, check, done, race, refused

NAME, PASSWORD = "worker", "correct horse"
RIGHTS = ["+@read", "+@write", "+@scripting", "+@connection", "+@transaction", "+@pubsub", "-@dangerous"]

operator = redis.Redis(host=HOST, port=PORT)
made = operator.acl_setuser(
    NAME,
    enabled=True,
    reset=True,
    passwords=[f"+{PASSWORD}"],
    keys=["lock:*"],
    categories=RIGHTS,
    commands=["+acl|whoami"],
)
keys = operator.acl_getuser(NAME)["keys"]
check("a user of locks is made", made and "lock:*" in str(keys), keys)


def connect(name=NAME, password=PASSWORD, **options):
    return redis.Redis(host=HOST, port=PORT, username=name, password=password, **options)


check("another password is refused", refused(AuthenticationError, connect(password="incorrect").ping))
check("an unknown user is refused", refused(AuthenticationError, connect(name="nobody").ping))
client = connect()
check("login", client.ping() and client.acl_whoami() == NAME)
check("login over RESP3", connect(protocol=3, decode_responses=True).acl_whoami() == NAME)
url = f"redis://{NAME}:{PASSWORD.replace(' ', '%20')}@{HOST}:{PORT}"
check("login by a URL", redis.Redis.from_url(url).acl_whoami() == NAME)

first, second = client.lock("lock:stock", timeout=10), client.lock("lock:stock", timeout=10)
check("acquire", first.acquire() and first.owned())
check("contended acquire is refused", not second.acquire(blocking=False))
second.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, second.release))
check("extend", first.extend(5) and 14_000 < client.pttl("lock:stock") <= 15_000)
first.release()
check("release", client.exists("lock:stock") == 0)

stray = client.lock("stock", timeout=10)
check("a lock of another name is refused", refused(NoPermissionError, stray.acquire))
check("so is a script on its key", refused(NoPermissionError, lambda: client.eval("return 1", 1, "stock")))
sly = "return redis.call('get', 'stock')"
check("and one that does not declare it", refused(redis.ResponseError, lambda: client.eval(sly, 0)))
check("a command of the operator is refused", refused(NoPermissionError, lambda: client.config_get("*")))
check("and so is FLUSHALL", refused(NoPermissionError, client.flushall))
check("and more rights", refused(NoPermissionError, lambda: client.acl_setuser(NAME, commands=["+@all"])))
check("and a message to others", refused(NoPermissionError, lambda: client.publish("stock", "gone")))
reasons = {entry["reason"] for entry in operator.acl_log()}
check("the operator finds it in the log", {"auth", "command", "key", "channel"} <= reasons, reasons)

with client.pipeline() as pipe:
    pipe.set("lock:a", 1).incr("lock:a").get("stock")
    check("a transaction with what is refused", refused(NoPermissionError, pipe.execute))
    check("is not carried out", client.exists("lock:a") == 0)

fences = []


def round_of(critical):
    with client.lock("lock:race", timeout=10, sleep=0.005, thread_local=False):
        fences.append(client.incr("lock:race:fence"))
        critical()


race(round_of)
check("fences only grow", fences == sorted(set(fences)) and len(fences) == fences[-1], fences)
check("who is deleted is gone", operator.acl_deluser(NAME) == 1 and refused(redis.ConnectionError, client.ping))
done()
