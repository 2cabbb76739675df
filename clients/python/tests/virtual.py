"""An event loop whose time passes when nothing else is left to do."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing happens any more, and the test waits"
            self._passed(timeout)
        return ready


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._time = 1_000.0
        super().__init__(_Selector(self._pass))

    def _pass(self, seconds: float) -> None:
        self._time += max(0.0, seconds)

    def time(self) -> float:
        return self._time


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test in virtual time, and cancels what it leaves behind."""
    loop = Loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(test())
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
