"""A client in Python. It prints a line when it is connected, and then executes commands from standard input, as process.go does."""

import asyncio
import json
import pathlib
import resource
import subprocess
import sys

PACKAGES = ["websockets==16.1.1", "centrifuge-python==0.7.0"]

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once."


def install():
    """Installs the packages in the user's cache directory, unless they are there already."""
    directory = pathlib.Path.home() / ".cache" / "penstock-benchmarks" / "clients-python-1"  # another number for other packages
    if not (directory / "centrifuge").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", directory, *PACKAGES]
        subprocess.run(command, check=True, stdout=sys.stderr)
    sys.path[:0] = [str(directory), "../../clients/python/src"]


class Counter:
    """Counts messages."""

    def __init__(self):
        self.missing, self.done = 0, asyncio.Event()

    def received(self, payload):
        if payload["text"] != TEXT:
            raise ValueError(payload)
        self.missing -= 1
        if self.missing == 0:
            self.done.set()

    def expect(self, n):
        self.missing = n
        self.done.clear()


async def penstock(address, counter):
    from penstock_client import Client

    client = Client(f"ws://{address}/ws")
    client.on("SAID")(lambda payload, _: counter.received(payload))
    await client.connect()
    return client


async def websockets(address, counter):
    """The library alone: no reconnection, no calls, no positions."""
    from websockets.asyncio.client import connect

    socket = await connect(f"ws://{address}/ws")

    async def read():
        async for text in socket:
            message = json.loads(text)
            if message["type"] == "SAID":
                counter.received(message["payload"])

    return asyncio.create_task(read())


async def centrifuge(address, counter):
    from centrifuge import Client, ClientEventHandler

    subscribed = asyncio.Event()

    class Events(ClientEventHandler):
        async def on_subscribed(self, ctx):
            subscribed.set()

        async def on_publication(self, ctx):
            counter.received(ctx.pub.data)

    client = Client(f"ws://{address}/connection/websocket", events=Events())
    await client.connect()
    await subscribed.wait()
    return client


async def main(library, address):
    counter = Counter()
    client = await {"penstock": penstock, "websockets": websockets, "centrifuge": centrifuge}[library](address, counter)
    print("connected", flush=True)
    lines, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        if line[0] == "expect":
            counter.expect(int(line[1]))
        elif line[0] == "await":
            await counter.done.wait()
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"CPU": round((used.ru_utime + used.ru_stime) * 1e9), "RSS": used.ru_maxrss * 1024}), flush=True)
    del client


install()
asyncio.run(main(*sys.argv[1:]))
