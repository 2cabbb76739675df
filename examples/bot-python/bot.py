"""A user of the chat example that answers commands: python bot.py [ROOM [URL]]

Run the chat first: go run ./examples/chat
"""

import asyncio
import random
import sys

from penstock_client import Message, PenstockError, State, StateInfo

from contract import Contract, Said, Say

NAME = "bot"
HELP = "I know !who, !roll and !find WORDS"


async def answer(client: Contract, said: Said) -> str:
    command, _, words = said["text"].partition(" ")
    match command:
        case "!who":
            users = await client.call("WHO", {"room": said["room"]})
            return "here are " + ", ".join(users["users"])
        case "!roll":
            return f"{said['user']} rolls {random.randint(1, 6)}"
        case "!find":
            found = await client.call("SEARCH_HISTORY", {"room": said["room"], "query": words})
            return f"{len(found['matches'])} messages have {words!r}"
    return HELP


async def run(room: str = "lobby", url: str = "ws://localhost:8080/ws") -> None:
    # Sent too fast, messages wait until the limits permit them.
    client = Contract(url, token=NAME, pacing=True, resume=True)

    @client.on("SAID")
    async def said(message: Said, _: Message) -> None:
        if not message["text"].startswith("!") or message["user"] == NAME:
            return
        try:
            text = await answer(client, message)
        except PenstockError as error:  # its text is for users
            text = error.message
        # Sent again after an interruption, the answer is published once, because of its ID.
        reply: Say = {"room": message["room"], "text": text, "id": "re-" + message["id"]}
        await client.call("SAY", reply, idempotent=True)

    async def join(state: State, info: StateInfo) -> None:
        if state == "open" and not info.resumed:  # a resumed session is still in the room
            await client.call("JOIN_ROOM", {"room": room, "offset": 0})

    client.on_state(join)
    async with client:
        await asyncio.Future()  # until Ctrl-C


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
