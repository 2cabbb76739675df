"""Subscriptions that begin with the latest publications, without sockets and without waiting."""

from typing import Any

from simulated import Simulated

from penstock_client import _env as do
from penstock_client._topics import Sub
from penstock_client.errors import PenstockError
from penstock_client.messages import Position


class Room(Simulated):
    """A client in a room whose publications have the epoch K1."""

    def subscribe(self, **options: Any) -> Sub:
        sub = Sub("room", **options)
        self.core.subscribe(sub)
        self.run()
        return sub

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The payloads of all requests, without what they have in common."""
        return [
            {k: v for k, v in m["payload"].items() if k not in ("topic", "positions")} for m in self.of("$ws:subscribe")
        ]

    def accept(self, offset: int, *following: int, epoch: str = "K1", recovered: bool = True, **more: Any) -> None:
        """Answers the latest request. Publications follow the answer."""
        answer = {"topic": "room", "epoch": epoch, "offset": offset, "recovered": recovered} | more
        self.answer(self.of("$ws:subscribe")[-1], "$ws:subscribed", answer)
        self.publish(*following)

    def publish(self, *offsets: int) -> None:
        for offset in offsets:
            self.receive("SAID", offset, topic="room", offset=offset)

    def got(self, sub: Sub) -> list[Any]:
        """What a subscription has received, with "lost" for each loss."""
        messages = [action.message for action in self.done if isinstance(action, do.Deliver) and action.sub is sub]
        return ["lost" if m.type == "$loss" else m.payload for m in messages if m.type in ("SAID", "$loss")]

    def reconnect(self) -> None:
        self.cut()
        self.wait(1)
        self.open()


def start() -> Room:
    s = Room()
    s.open()
    return s


def test_first_subscription_receives_the_latest_and_then_everything() -> None:
    s = start()
    one = s.subscribe(last=3)
    s.accept(7, 8, 9, 10, 11)
    assert s.requests == [{"last": 3}]
    assert s.got(one) == [8, 9, 10, 11]
    assert s.core.topics.position(one) == Position("K1", 11)


def test_reconnection_presents_the_position_and_repeats_nothing() -> None:
    s = start()
    one = s.subscribe(last=3)
    s.accept(7, 8, 9, 10)
    s.reconnect()
    assert s.requests[1:] == [{"epoch": "K1", "offset": 10, "last": 3}]
    s.accept(10, 11)
    assert s.got(one) == [8, 9, 10, 11]


def test_latest_publications_follow_a_loss() -> None:
    s = start()
    one = s.subscribe(last=2)
    s.accept(7, 8, 9)
    s.reconnect()
    s.accept(57, 58, 59, 60, recovered=False)
    assert s.got(one) == [8, 9, "lost", 58, 59, 60]


def test_second_subscription_receives_the_latest_and_the_first_one_nothing_twice() -> None:
    s = start()
    one = s.subscribe(last=3)
    s.accept(7, 8, 9, 10, 11)
    two = s.subscribe(last=2)
    assert s.requests[1:] == [{"last": 3}]
    s.publish(12)  # follows the answer again
    assert s.core.topics.position(two) is None
    s.accept(9, 10, 11, 12, 13)
    assert (s.got(one), s.got(two)) == ([8, 9, 10, 11, 12, 13], [10, 11, 12, 13])
    s.core.topics.unsubscribe(one)
    s.reconnect()
    assert s.requests[2:] == [{"epoch": "K1", "offset": 13, "last": 2}]


def test_second_subscription_receives_what_others_have_not_received() -> None:
    s = start()
    one = s.subscribe()
    s.accept(7, 8)
    two = s.subscribe(last=2)
    s.accept(20)
    assert s.requests[2:] == [{"epoch": "K1", "offset": 8, "last": 2}]
    s.publish(21)  # follows the answer
    s.accept(8, *range(9, 23))
    assert (s.got(one), s.got(two)) == ([*range(8, 23)], [*range(9, 23)])


def test_second_subscription_when_the_epoch_has_ended() -> None:
    s = start()
    one = s.subscribe()
    s.accept(7, 8)
    two = s.subscribe(last=2)
    s.accept(3, epoch="K2")
    s.accept(3, 4, 5, epoch="K2", recovered=False)
    assert (s.got(one), s.got(two)) == ([8, "lost", 4, 5], ["lost", 4, 5])


def test_latest_publications_follow_a_position_only_if_what_was_missed_is_gone() -> None:
    s = start()
    one = s.subscribe(since=Position("K1", 5), last=3)
    assert s.requests == [{"epoch": "K1", "offset": 5, "last": 3}]
    s.accept(5, *range(6, 21))
    assert s.got(one) == [*range(6, 21)]
    two = s.subscribe(since=Position("K1", 2), last=3)
    s.accept(17, 18, 19, 20, 21, recovered=False)
    assert s.got(two) == ["lost", 18, 19, 20, 21]
    assert s.got(one)[-2:] == [20, 21]


def test_rejected_request_for_the_latest_is_repeated() -> None:
    s = start()
    one = s.subscribe(last=4)
    error = {"code": "UNAVAILABLE", "retryable": True}
    s.answer(s.of("$ws:subscribe")[-1], "RPC_ERROR", error)
    two = s.subscribe(since=Position("K1", 9))
    s.wait(5)
    assert s.requests[1:] == [{"last": 4}]
    s.accept(6, 7, 8, 9, 10, 11)
    assert (s.got(one), s.got(two)) == ([7, 8, 9, 10, 11], [10, 11])


def test_topic_without_a_history_is_reported() -> None:
    s = start()
    one = s.subscribe(last=2)
    s.answer(s.of("$ws:subscribe")[-1], "$ws:subscribed", {"topic": "room"})
    s.receive("SAID", "hi", topic="room")
    assert s.got(one) == ["hi"]
    assert len(s.requests) == 1
    (error,) = [action.error for action in s.done if isinstance(action, do.Report)]
    assert isinstance(error, PenstockError) and error.code == "FAILED_PRECONDITION"


def test_position_without_an_epoch_is_none() -> None:
    s = start()
    none = Position("", 0)
    one, two = s.subscribe(since=none), s.subscribe(since=none, last=2)
    assert s.requests == [{}]
    assert s.core.topics.position(one) is None
    s.accept(7)
    assert s.requests[1:] == [{"last": 2}]
    assert s.core.topics.position(two) is None
    s.accept(6, 7, 8)
    assert (s.got(one), s.got(two)) == ([8], [7, 8])
