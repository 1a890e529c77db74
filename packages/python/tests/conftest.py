"""What the tests share: clients that do not wait before they try again, and pytest inside of pytest."""

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

pytest_plugins = ["pytester"]


@pytest.fixture
def connect():
    """Makes clients of redis-py. With `retries` they send a request again as often as its reply is lost, at once."""
    clients = []

    def connect(target, retries=0, **options):
        options = {"decode_responses": True, "retry": Retry(NoBackoff(), retries), **options}
        url = target if isinstance(target, str) else target.url
        clients.append(redis.Redis.from_url(url, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
