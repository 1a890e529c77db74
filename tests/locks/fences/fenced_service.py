"""An HTTP service that refuses writers whose fencing token is stale.

The token comes in a header, and is checked in the transaction of the write: a check before it, in a middleware alone, would let a
request through that waits between the check and the write.
"""

import re
import sqlite3
from contextlib import closing


class Service:
    """A WSGI application: PUT sets the price, for the holder of the lock `price`."""

    def __init__(self, file):
        self._file = file

    def __call__(self, environ, start_response):
        token = environ.get("HTTP_FENCING_TOKEN", "")
        if not re.fullmatch("[1-9][0-9]{0,18}", token) or int(token) >= 2**63:
            status, text = "428 Precondition Required", "the header Fencing-Token has the token of the lock 'price'"
        else:
            status, text = self._put(int(token), environ["wsgi.input"].read(20))
        start_response(status, [("Content-Type", "text/plain")])
        return [text.encode()]

    def _put(self, token, price):
        with closing(sqlite3.connect(self._file, isolation_level=None)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                database.execute("INSERT OR REPLACE INTO redlatch_fence VALUES ('price', ?)", (token,))
                database.execute("UPDATE article SET price = ?", (price.decode(),))
                database.execute("COMMIT")
            except sqlite3.IntegrityError as stale:
                return "412 Precondition Failed", str(stale)
        return "204 No Content", ""
