"""The parser of replies, and the connection."""

import random
import socket
import threading

import pytest

from redlatch._resp import MORE, CommandError, Connection, Parser, encode

REPLIES = [
    (b"+OK\r\n", "OK"),
    (b":-7\r\n", -7),
    (b"(123456789012345678901234567890\r\n", 123456789012345678901234567890),
    (b",2.5\r\n", 2.5),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b"_\r\n", None),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"$0\r\n\r\n", ""),
    (b"$6\r\na\r\nb\r\n\r\n", "a\r\nb\r\n"),
    (b"$2\r\n\xff!\r\n", "\\xff!"),
    (b"=8\r\ntxt:word\r\n", "word"),
    (b"*0\r\n", []),
    (b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", ["a", [1]]),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", {"a": 1, "b": [None]}),
    (b"|1\r\n+ttl\r\n:3\r\n+OK\r\n", "OK"),
    (b">2\r\n+invalidate\r\n_\r\n+OK\r\n", "OK"),
]


@pytest.mark.parametrize(("data", "value"), REPLIES)
def test_a_reply_is_read_however_it_is_cut(data, value):
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        parser = Parser()
        for piece in pieces[:-1]:
            parser.feed(piece)
            assert parser.next() is MORE
        parser.feed(pieces[-1])
        assert parser.next() == value
        assert parser.next() is MORE


def test_replies_that_arrive_together_are_read_one_by_one():
    source = random.Random(1)
    for _ in range(200):
        wanted = source.choices(REPLIES, k=5)
        data = b"".join(data for data, _ in wanted)
        parser, found = Parser(), []
        while data:
            cut = source.randint(1, len(data))
            parser.feed(data[:cut])
            data = data[cut:]
            while (value := parser.next()) is not MORE:
                found.append(value)
        assert found == [value for _, value in wanted]


def test_an_error_is_a_value_so_that_those_inside_of_arrays_do_not_hide_the_rest():
    parser = Parser()
    parser.feed(b"*2\r\n-ERR no\r\n+OK\r\n!7\r\nERR two\r\n")
    first, second = parser.next(), parser.next()
    assert isinstance(first[0], CommandError) and str(first[0]) == "ERR no" and first[1] == "OK"
    assert isinstance(second, CommandError) and str(second) == "ERR two"


def test_what_is_no_reply_is_refused():
    parser = Parser()
    parser.feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ConnectionError, match="HTTP"):
        parser.next()


def test_words_are_bytes_text_and_numbers():
    assert encode(("SET", b"\xff", 1, 0.5, "ä")) == b"*5\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$1\r\n1\r\n$3\r\n0.5\r\n$2\r\n\xc3\xa4\r\n"


def test_a_connection_that_is_closed_in_the_middle_of_a_reply_is_an_error_and_stays_one():
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        stream, _ = listener.accept()
        for reply in (b"%1\r\n+server\r\n+fake\r\n", b"$5\r\nhel"):
            stream.recv(1 << 16)
            stream.sendall(reply)
        stream.close()

    thread = threading.Thread(target=serve)
    thread.start()
    connection = Connection("127.0.0.1", listener.getsockname()[1], None, 30)
    with pytest.raises(ConnectionError, match="closed the connection"):
        connection.call("GET", "a")
    with pytest.raises(OSError):
        connection.call("GET", "a")
    thread.join()
    listener.close()
