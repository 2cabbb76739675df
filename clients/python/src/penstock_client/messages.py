"""What an application receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from .errors import PenstockError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Type = TypeVar("Type", bound=str, default=str, covariant=True)
    Payload = TypeVar("Payload", default=Any, covariant=True)
    Received = TypeVar("Received", bound="Message", default="Message", covariant=True)
else:  # type checkers alone need the defaults, which Python has since 3.13
    from typing import TypeVar

    Type = TypeVar("Type", bound=str, covariant=True)
    Payload = TypeVar("Payload", covariant=True)
    Received = TypeVar("Received", covariant=True)

State = Literal["idle", "connecting", "open", "waiting", "closed"]


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where the publications of a topic were received."""

    epoch: str
    offset: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Publications that this client will not receive. Unless it is exact, load the state again."""

    topic: str
    first: int = 0
    """The first offset that is lost. 0: it is unknown what is lost."""
    last: int = 0
    """The last offset that is lost."""
    ended: Position | None = None
    """Where the previous epoch ended: its publications with higher offsets are void."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a topic with presence."""

    conn_id: str
    tenant_id: str = ""
    user_id: str = ""
    info: str = ""


@dataclass(frozen=True)
class Message(Generic[Type, Payload]):
    """A message of the server outside calls.

    A subscription also receives what has happened to its topic, as messages with one of these types:
    "$loss" with a Loss, "$reset" with the number of messages of the state that come before any other,
    and "$members" with a list of Member.
    """

    type: Type
    payload: Payload = None  # type: ignore[assignment]
    topic: str | None = None
    """The topic of a publication."""
    position: Position | None = None
    """The position of a publication, if its topic has a history."""
    state: bool = False
    """The publication is part of the state that the subscription has asked for."""
    timestamp: int = 0
    """The clock of the server in milliseconds since 1970."""


TopicMessage: TypeAlias = (
    Message[Literal["$loss"], Loss] | Message[Literal["$reset"], int] | Message[Literal["$members"], list[Member]]
)
"""What a subscription receives besides publications."""


class Topic(str, Generic[Received]):
    """The name of a topic, with the type of what a subscription receives; `penstock types -python` prints some."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StateInfo:
    """Why the client has its state."""

    error: PenstockError | None = None
    """Why there is no connection."""
    close_code: int | None = None
    """The code of the close frame, if there was one."""
    retry_in: float | None = None
    """In how many seconds the next attempt begins."""
    resumed: bool = False
    """Whether the session of the previous connection continues."""


@dataclass(slots=True)
class Connection:
    """What the server has said about the connection."""

    id: str = ""
    """Identifies the connection in the logs of the server; empty if the server does not know the greeting."""
    member_id: str = ""
    """Member.conn_id of this client: the id of the first connection of its session."""
    resumed: bool = False
    """Whether the session of the connection before continues."""
    contract_hash: str = ""
    """The hash of the messages of the server."""
