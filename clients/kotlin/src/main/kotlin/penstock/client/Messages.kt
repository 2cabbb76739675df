package penstock.client

import kotlinx.serialization.json.JsonElement

/** What a client is doing. */
public enum class State {
    /** It has not been used. */
    IDLE,

    /** It opens a connection, and greets. */
    CONNECTING,

    /** It is connected. */
    OPEN,

    /** The connection was lost, and the next attempt begins later. */
    WAITING,

    /** It does not connect again by itself. */
    CLOSED,
}

/**
 * Why the client has its state.
 *
 * @property error why there is no connection.
 * @property closeCode the code of the close frame, if there was one.
 * @property retryInMs in how many milliseconds the next attempt begins.
 * @property resumed whether the session of the previous connection continues.
 */
public class StateInfo internal constructor(
    public val error: PenstockException? = null,
    public val closeCode: Int? = null,
    public val retryInMs: Long? = null,
    public val resumed: Boolean = false,
)

/**
 * What the server has said about the connection.
 *
 * @property id identifies the connection in the logs of the server; empty if the server does not know the greeting.
 * @property memberId [Member.connId] of this client: the id of the first connection of its session.
 * @property resumed whether the session of the connection before continues.
 * @property contractHash the hash of the messages of the server.
 */
public data class ConnectionInfo(
    public val id: String = "",
    public val memberId: String = "",
    public val resumed: Boolean = false,
    public val contractHash: String = "",
)

/** Up to where the publications of a topic were received. */
public data class Position(public val epoch: String, public val offset: Long)

/** What a subscription receives: [Message], [Loss], [Reset] or [Members]. */
public sealed interface TopicEvent

/**
 * A message of the server outside calls.
 *
 * @property topic the topic of a publication.
 * @property position the position of a publication, if its topic has a history.
 * @property state the publication is part of the state that the subscription has asked for.
 * @property timestamp the clock of the server in milliseconds since 1970.
 */
public data class Message(
    public val type: String,
    public val payload: JsonElement? = null,
    public val topic: String? = null,
    public val position: Position? = null,
    public val state: Boolean = false,
    public val timestamp: Long = 0,
) : TopicEvent

/**
 * Publications that this client will not receive. Unless it is exact, load the state again.
 *
 * @property first the first offset that is lost. 0: it is unknown what is lost.
 * @property last the last offset that is lost.
 * @property ended where the previous epoch ended: its publications with higher offsets are void.
 */
public data class Loss(
    public val topic: String,
    public val first: Long = 0,
    public val last: Long = 0,
    public val ended: Position? = null,
) : TopicEvent

/**
 * The state of a topic begins: discard the state before.
 *
 * @property count the messages of the state that come before any other.
 */
public data class Reset(public val topic: String, public val count: Long) : TopicEvent

/** All members of a topic with presence, after a change. */
public data class Members(public val topic: String, public val members: List<Member>) : TopicEvent

/** A member of a topic with presence. */
public data class Member(
    public val connId: String,
    public val tenantId: String = "",
    public val userId: String = "",
    public val info: String = "",
)
