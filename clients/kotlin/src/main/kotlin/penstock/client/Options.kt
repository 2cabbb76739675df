package penstock.client

import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runInterruptible
import kotlinx.serialization.json.Json
import okhttp3.OkHttpClient

/** Options of a [Client]. The client reads them when it is created. */
public class Options {
    /**
     * Returns the token for the handshake. It is called before each attempt, and when the identity is about to expire; its argument
     * says whether the server has rejected the last token.
     */
    public var token: (suspend (expired: Boolean) -> String?)? = null

    /** Milliseconds of a call that has no timeout of its own. */
    public var timeoutMs: Long = 30_000

    /** Bounds of what waits for a connection. */
    public var queue: Queue = Queue()

    /** Asks for a session, so that the next connection restores what handlers of the server have subscribed to. */
    public var resume: Boolean = false

    /** Sends only what the limits of the server permit, and repeats rejected messages in order. */
    public var pacing: Boolean = false

    /** Returns true if the client must not connect again after a close code of the application. */
    public var stopOn: (code: Int) -> Boolean = { false }

    /** Has the proxy, TLS, DNS and interceptors of connections. The client uses threads of its own. */
    public var http: OkHttpClient? = null

    /** Further headers of the handshake. */
    public var headers: Map<String, String> = emptyMap()

    /** Encodes and decodes typed payloads. */
    public var json: Json = Json { ignoreUnknownKeys = true }

    /** Runs listeners and handlers of messages, one at a time: Dispatchers.Main in an Android app that changes its views there. */
    public var callbacks: CoroutineDispatcher = Dispatchers.Default.limitedParallelism(1)

    /** Time for tests. */
    internal var clock: Clock = Clock()

    /** A network for tests. */
    internal var transport: Transport? = null

    /** The same as [token], for Java. The function may block. */
    public fun setTokenProvider(provider: TokenProvider) {
        token = { expired -> runInterruptible(Dispatchers.IO) { provider.token(expired) } }
    }
}

/** Returns the token for the handshake, for Java. */
public fun interface TokenProvider {
    public fun token(expired: Boolean): String?
}

/**
 * Bounds of the messages that wait for a connection, or for the limits of the server.
 *
 * @property maxMessages the most messages that wait.
 * @property maxBytes the most bytes of their payloads.
 * @property overflow which message is rejected when the queue is full.
 * @property maxWaitMs how many milliseconds an event waits. Calls wait until their deadline.
 */
public class Queue @JvmOverloads constructor(
    public val maxMessages: Int = 1_000,
    public val maxBytes: Long = 1_000_000,
    public val overflow: Overflow = Overflow.DROP_NEWEST,
    public val maxWaitMs: Long = 30_000,
)

/** Which message is rejected when a queue is full. */
public enum class Overflow {
    /** The new one. */
    DROP_NEWEST,

    /** The one that has waited longest. */
    DROP_OLDEST,
}

/**
 * Options of a subscription.
 *
 * @property since begins behind this position instead of now. One without an epoch is none.
 * @property state begins with the state of the topic, after a [Reset].
 * @property presence asks for the members of the topic: [Members] after each change.
 * @property last without [since], and after a [Loss], begins with that many of the latest publications: fewer if the history has no
 * more, and more if another subscription of the topic asks for more, or begins earlier.
 * @property hidden subscribes without being present, which the server must permit. The client is present nevertheless while another
 * subscription of the topic is not hidden.
 */
public class SubscribeOptions @JvmOverloads constructor(
    public val since: Position? = null,
    public val state: Boolean = false,
    public val presence: Boolean = false,
    public val last: Int = 0,
    public val hidden: Boolean = false,
)
