"""The core, without sockets and without waiting."""

import gc

import pytest
from simulated import Simulated

from penstock_client import _env as do
from penstock_client._queue import Queue
from penstock_client._topics import Sub
from penstock_client.errors import PenstockError
from penstock_client.messages import Position


def test_idempotent_call_is_sent_again_after_an_interruption() -> None:
    s = Simulated()
    s.open()
    s.submit("ASK", idempotent=True)
    s.submit("PAY")
    s.cut()
    assert [error.outcome_unknown for error, _ in s.settled if error] == [True]
    s.wait(1)
    s.open()
    first, second = s.of("ASK")
    assert first["meta"]["correlationId"] != second["meta"]["correlationId"]
    s.answer(second, "ANSWER", {"n": 2})
    assert s.settled[-1] == (None, {"n": 2})
    assert len(s.of("PAY")) == 1


def test_full_queue_counts_bytes() -> None:
    s = Simulated(queue=Queue(max_bytes=20))
    for _ in range(4):
        s.submit("SAY", one_way=True)
    assert [error.code for error, _ in s.settled if error] == ["RESOURCE_EXHAUSTED"] * 2


def test_message_above_the_limit_of_the_server_is_not_sent() -> None:
    s = Simulated()
    s.open(maxMessageBytesByType={"SAY": 10})
    s.submit("SAY", one_way=True)
    (error, _) = s.settled[0]
    assert error is not None and error.details["kind"] == "payload"
    assert not s.of("SAY")


def test_connection_with_a_full_buffer_sends_nothing_more() -> None:
    s = Simulated()
    s.open()
    s.link.buffered += 2_000_000
    s.submit("ASK")
    assert not s.of("ASK")
    s.core.written(s.link, 2_000_000)
    s.run()
    assert len(s.of("ASK")) == 1


def test_silent_connection_is_pinged_and_replaced() -> None:
    s = Simulated()
    s.open()
    s.wait(26)
    assert sum(isinstance(a, do.Ping) for a in s.done) == 1
    s.core.heard(s.link)
    s.wait(36)
    assert sum(isinstance(a, do.Ping) for a in s.done) == 2
    assert s.core.connection.state != "open"
    assert any(isinstance(a, do.Close) and a.code is None for a in s.done)


def test_late_timer_does_not_end_a_connection() -> None:
    s = Simulated()
    s.open()
    s.wait(26)
    s.time += 3_600  # the computer was suspended: messages may wait unread
    s.core.run_timers()
    s.run()
    assert s.core.connection.state == "open"


def test_closed_client_has_no_timers_and_rejects_calls() -> None:
    s = Simulated()
    s.open()
    s.submit("ASK")
    s.receive("$ws:identity-expiring", {"expiresInMs": 60_000})
    s.core.close()
    s.run()
    assert s.core.next_timer() is None
    assert s.core.outbox.waiting == s.core.outbox.unanswered == 0
    with pytest.raises(PenstockError):
        s.submit("ASK")


def test_payload_that_cannot_be_encoded_is_an_invalid_argument() -> None:
    s = Simulated()
    s.open()
    for payload in (object(), float("nan"), "\ud800"):
        with pytest.raises(PenstockError) as raised:
            s.core.submit("ASK", payload)
        assert raised.value.code == "INVALID_ARGUMENT"


def test_subscription_at_an_older_position_receives_what_others_have() -> None:
    s = Simulated()
    s.open()
    first, late = Sub("room"), Sub("room", Position("K1", 3))
    s.core.subscribe(first)
    s.run()
    s.answer(
        s.of("$ws:subscribe")[0], "$ws:subscribed", {"topic": "room", "epoch": "K1", "offset": 5, "recovered": True}
    )
    s.core.subscribe(late)
    s.run()
    again = s.of("$ws:subscribe")[1]
    assert again["payload"]["offset"] == 3
    s.answer(again, "$ws:subscribed", {"topic": "room", "epoch": "K1", "offset": 3, "recovered": True})
    for offset in (4, 5, 6):
        s.receive("SAID", {"n": offset}, topic="room", offset=offset)

    def received(sub: Sub) -> list[int]:
        return [a.message.payload["n"] for a in s.done if isinstance(a, do.Deliver) and a.sub is sub]

    assert received(first) == [6]
    assert received(late) == [4, 5, 6]


def test_topic_without_presence_is_reported() -> None:
    s = Simulated()
    s.open()
    s.core.subscribe(Sub("room", presence=True))
    s.run()
    s.answer(s.of("$ws:subscribe")[0], "$ws:subscribed", {"topic": "room"})
    (error,) = [action.error for action in s.done if isinstance(action, do.Report)]
    assert isinstance(error, PenstockError) and error.code == "FAILED_PRECONDITION"


def test_topic_is_hidden_while_all_its_subscriptions_are() -> None:
    s = Simulated()
    s.open()
    hidden, shown = Sub("room", hidden=True), Sub("room")
    asked: list[bool] = []

    def answer() -> None:
        s.run()
        for f in s.of("$ws:subscribe")[len(asked) :]:
            asked.append(f["payload"].get("hidden", False))
            s.answer(f, "$ws:subscribed", {"topic": "room"})

    s.core.subscribe(hidden)
    answer()
    s.core.subscribe(shown)
    answer()
    s.core.topics.unsubscribe(hidden)
    s.core.subscribe(hidden)
    answer()
    s.core.topics.unsubscribe(shown)
    answer()
    assert asked == [True, False, True]


def test_thousand_reconnections_leave_nothing() -> None:
    s = Simulated()
    s.core.subscribe(Sub("room"))
    objects = 0
    for n in range(1_000):
        s.open()
        s.submit("ASK")
        s.wait(6)  # the connection is healthy
        s.cut()
        s.wait(1)  # until the next attempt
        s.sent.clear()
        s.done.clear()
        s.dials.clear()
        s.settled.clear()
        del s.links[:-1]
        if n == 100:
            gc.collect()
            objects = len(gc.get_objects())
    gc.collect()
    assert len(gc.get_objects()) < objects + 500


def test_message_that_no_decoder_can_read_is_reported() -> None:
    s = Simulated()
    s.open()
    s.core.received(s.link, "[" * 1_000_000)
    s.run()
    assert isinstance(s.done[-1], do.Report)
