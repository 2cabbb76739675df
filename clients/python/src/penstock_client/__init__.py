"""A client for Penstock servers: calls, events, streams and topics over WebSocket, with asyncio."""

from ._fallback import Fallback, Transport
from ._handles import Stream, Subscription
from ._queue import Queue
from .client import Client
from .errors import PenstockError
from .messages import Connection, Loss, Member, Message, Position, State, StateInfo, Topic, TopicMessage

__all__ = [
    "Client",
    "Connection",
    "Fallback",
    "Loss",
    "Member",
    "Message",
    "PenstockError",
    "Position",
    "Queue",
    "State",
    "StateInfo",
    "Stream",
    "Subscription",
    "Topic",
    "TopicMessage",
    "Transport",
]
