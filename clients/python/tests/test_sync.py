"""The client that blocks, with the server at PENSTOCK_URL."""

import os
import threading

import pytest

from penstock_client import PenstockError
from penstock_client.sync import Client

URL = os.environ["PENSTOCK_URL"]


def test_methods_block_until_there_is_an_answer() -> None:
    with Client(URL) as client:
        assert client.call("ECHO", {"n": 7}) == {"n": 7}
        with pytest.raises(PenstockError) as raised:
            client.call("UNHEARD_OF")
        assert raised.value.code == "UNIMPLEMENTED"
        assert [row["id"] for row in client.stream("EXPORT_ROWS", {"count": 100})] == list(range(100))


def test_subscription_receives_messages() -> None:
    with Client(URL) as client, client.subscribe("room/sync") as room:
        client.send("SAY", {"room": "sync", "text": "one"})
        client.send("SAY", {"room": "sync", "text": "two"})
        assert [next(room).payload["text"], next(room).payload["text"]] == ["one", "two"]


def test_close_ends_the_thread() -> None:
    before = threading.active_count()
    client = Client(URL)
    client.connect()
    assert threading.active_count() == before + 1
    client.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        client.call("ECHO", {"n": 1})


def test_closed_client_ends_its_loops() -> None:
    client = Client(URL)
    room = client.subscribe("room/quiet")
    threading.Timer(0.2, client.close).start()
    with pytest.raises((PenstockError, StopIteration)):
        next(room)
