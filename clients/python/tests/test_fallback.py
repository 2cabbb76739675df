"""When a client falls back to HTTP, and when it returns, in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import virtual
from blocked import Response, Scene, Socket, seconds

from penstock_client import _fallback as fallback
from penstock_client._wire import Ended

# The rule is that of the Go client, whose stories this client passes, too.
STORIES = Path(__file__).parents[3] / "client/fallback/testdata/decisions.txt"

# The library has a message when all of it has arrived.
WITHOUT = {"6s large"}


def stories() -> list[Any]:
    found = []
    text = STORIES.read_text() if STORIES.exists() else ""  # which is not in the package
    for story in text.split("\n== ")[1:]:
        title, steps = story.split("\n", 1)
        alternatives = [""]
        if steps.startswith("for "):
            alternatives, steps = steps.split("\n", 1)[0][4:].split(" | "), steps.split("\n", 1)[1]
        for each in alternatives:
            if each not in WITHOUT:
                lines = [line.replace("$", each) for line in steps.strip().splitlines() if line]
                found.append(pytest.param(lines, id=f"{title}, {each}"))
    return found


class Story:
    """Executes the steps of a story."""

    def __init__(self) -> None:
        self.scene, self.began = Scene(), 0.0
        self.wire: Any = None

    async def step(self, word: str, rest: str) -> None:
        scene, loop = self.scene, asyncio.get_running_loop()
        words = rest.split()
        match word:
            case "measure":
                self.scene = Scene("measure")
            case "websocket":
                scene.websocket_answer = rest
            case "check":
                scene.check_answer = rest
            case "try":
                times = int(words.pop()[1:]) if words[-1][0] == "x" else 1
                for _ in range(times):
                    self.began = loop.time()
                    await self.attempt()
                    assert scene.exchanges == words
            case "connect":
                await self.connect(seconds(words[0]) or 0, words[1:])
            case "upgrade":
                before, scene.websocket_answer = scene.websocket_answer, f"upgrades {rest}"
                self.wire = await scene.attempt()
                scene.websocket_answer, self.began = before, loop.time()
            case "lost":
                with pytest.raises(Ended):
                    await self.wire.recv()
            case "message":
                scene.socket.messages.put_nowait("{}")
                await self.wire.recv()
            case "leave":
                self.wire.abort()
                await settled()
            case "wait":
                await asyncio.sleep(seconds(rest) or 0)
            case "=":
                assert scene.exchanges == words
            case "took":
                assert loop.time() - self.began == seconds(rest)
            case "reports":
                assert scene.reports == words
            case _:
                raise AssertionError(f"no step: {word}")

    async def attempt(self) -> None:
        try:
            wire = await self.scene.attempt()
        except Exception:
            return  # as the scene has said
        wire.abort()

    async def connect(self, lasts: float, frames: list[str]) -> None:
        """Opens a WebSocket, which writes frames and then lasts for a time."""
        scene = self.scene
        before, scene.websocket_answer = scene.websocket_answer, "upgrades 0s"
        wire = await scene.attempt()
        scene.websocket_answer = before

        async def read() -> None:
            while True:
                await wire.recv()

        reading = asyncio.create_task(read())
        for frame in frames:
            if frame.startswith("close:"):
                code = int(frame[6:])
                scene.socket.end(code)
            elif frame != "ping":  # which the library answers
                scene.socket.messages.put_nowait("{}")
        await asyncio.sleep(lasts)
        scene.socket.end()
        with pytest.raises(Ended):
            await reading
        await settled()
        wire.abort()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("steps", stories())
def test_decisions(steps: list[str]) -> None:
    async def main() -> None:
        story = Story()
        for line in steps:
            word, _, rest = line.partition(" ")
            await story.step(word, rest.strip())

    virtual.run(main)


def test_refusal_of_the_server_is_no_failure() -> None:
    async def main() -> None:
        scene = Scene()
        scene.websocket_answer = "401 refusal"
        for _ in range(3):
            with pytest.raises(Exception, match="401"):
                await scene.attempt()
            assert scene.exchanges == ["websocket"]

    virtual.run(main)


def test_binary_payloads_stay_with_websocket() -> None:
    async def main() -> None:
        scene = Scene(binary=True)
        for _ in range(4):
            with pytest.raises(ConnectionError):
                await scene.attempt()
            assert scene.exchanges == ["websocket", "check"]
        assert scene.reports == ["blocked"]

    virtual.run(main)


def test_failures_at_the_same_time_count_once() -> None:
    async def main() -> None:
        scene = Scene()
        scene.check_answer, scene.websocket_answer = "1s 204 ours", "1s 403"
        scene.dialer.works()
        all = await asyncio.gather(*(scene.attempt() for _ in range(10)), return_exceptions=True)
        assert {type(error) for error in all} == {ConnectionError}
        assert scene.exchanges.count("check") == 1

    virtual.run(main)


def test_client_returns_when_a_websocket_lasts() -> None:
    async def main() -> None:
        scene = Scene()

        async def opened() -> Response:
            response = Response(200)
            response.write('event: open\ndata: {"secret":"s"}\n\n')
            return response

        scene.open_answer = opened
        with pytest.raises(ConnectionError):
            await scene.attempt()
        wire = await scene.attempt()
        assert scene.reports == ["http-stream"]

        def one_message(socket: Socket) -> None:
            socket.messages.put_nowait("0")

        def two_messages(socket: Socket) -> None:
            one_message(socket)
            asyncio.get_running_loop().call_later(3, socket.messages.put_nowait, "1")

        scene.probes += [one_message, two_messages]
        began = asyncio.get_running_loop().time()
        reading = asyncio.create_task(wire.recv())
        await asyncio.wait({reading}, timeout=600)
        assert reading.result() == fallback.GOAWAY
        assert 180 < asyncio.get_running_loop().time() - began < 300
        scene.websocket_answer = "upgrades 0s"
        other = await scene.attempt()
        assert scene.exchanges == ["websocket"]
        wire.abort()
        other.abort()

    virtual.run(main)


@pytest.mark.parametrize("url", ["", "/ws/http", "wss://example.com/http", "https://example.com/http?a=b", "https://"])
def test_url_must_be_absolute(url: str) -> None:
    with pytest.raises(ValueError, match="must have the scheme http or https"):
        fallback.new(url, ssl=None, proxy=False, now=lambda: 0, scale=1, binary=False, run=print)
