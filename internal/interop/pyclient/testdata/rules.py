"""What a type checker accepts of a client with the generated module, and what it rejects: an unused comment `type: ignore` is an error."""

import typing as t

import kitchen
from penstock_client import Message, PenstockError, Topic


def is_answer(_: kitchen.Answer) -> None: ...
def is_row(_: kitchen.Row) -> None: ...


async def calls(client: kitchen.Contract) -> None:
    is_answer(await client.call("ASK", {"Question": "why"}, timeout=1, on_progress=lambda p: p["Percent"]))
    is_row(await client.call("ASK", {"Question": "why"}))  # type: ignore[arg-type]
    await client.call("ASK", {"question": "why"})  # type: ignore[call-overload]
    await client.call("ASK")  # type: ignore[call-overload]
    await client.call("PING")  # type: ignore[call-overload]


async def events(client: kitchen.Contract) -> None:
    await client.send("PING")
    await client.send("PING", {"n": 1})  # type: ignore[call-overload]
    await client.send("ASK", {"Question": "why"})  # type: ignore[call-overload]


async def streams(client: kitchen.Contract) -> None:
    stream = client.stream("EXPORT", {"Table": "users"})
    async for row in stream:
        is_row(row)
        is_answer(row)  # type: ignore[arg-type]
    if (reply := stream.reply) is not None:
        _: int = reply["Rows"]
    async for line in client.stream("TAIL", {"File": "log"}):
        line.upper()


def handlers(client: kitchen.Contract) -> None:
    @client.handle("CONFIRM", "CONFIRMED")
    async def confirm(request: kitchen.Confirm) -> kitchen.Confirmed:
        return {"Yes": request["Text"] == "yes"}

    @client.handle("CONFIRM", "CONFIRMED")  # type: ignore[arg-type]
    def wrong(request: kitchen.Confirm) -> kitchen.Answer:
        return {"Text": request["Text"]}

    @client.on("RECEIVED")
    def received(payload: kitchen.Received, message: Message) -> None:
        if payload["state"] == "a later state":  # an enumeration that clients only receive
            print(message.topic)
        shape = payload["shape"]
        if shape is not None and shape["kind"] == "circle":
            print(shape["radius"])
            print(shape["side"])  # type: ignore[typeddict-item]


async def topics(client: kitchen.Contract) -> None:
    async for message in client.subscribe(kitchen.room_topic("go"), state=True):
        if message.type == "RECEIVED":
            print(message.payload["color"], message.payload["text"])  # type: ignore[typeddict-item]
        elif message.type == "EVERYTHING":
            print(message.payload["text"])
        elif message.type == "$members":
            print(message.payload[0].user_id)
        elif message.type == "$loss":
            print(message.payload.first)
        elif message.type == "PONG":  # type: ignore[comparison-overlap]
            pass

    def handle(message: kitchen.RoomLobbyMessage) -> None:
        print(message.type, message.topic)

    client.subscribe(kitchen.room_lobby_topic, handle)
    client.subscribe(kitchen.room_topic("go"), handle)  # type: ignore[arg-type]
    client.subscribe(Topic[kitchen.RoomMessage]("room/go"), presence=True)
    client.subscribe("room/go")  # type: ignore[arg-type]


def values() -> None:
    color: kitchen.Color = "red"
    color = "blue"  # type: ignore[assignment]
    code: kitchen.ErrorCode = "TOO_HARD"
    everything = t.cast(kitchen.Everything, {})
    everything["a-b c"] = color
    everything["int"] = "one"  # type: ignore[typeddict-item]
    everything["textEmpty"].upper()
    print(code == PenstockError("TOO_HARD").code, kitchen.contract_hash, kitchen.limits)
