package penstock.client

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.asStateFlow
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement

/** Items of a stream that wait for the collector, at most. */
public const val DEFAULT_CREDIT: Int = 16

/**
 * A client of a Penstock server, which connects when it is used for the first time.
 *
 * All methods may be called from any thread. The state of the client belongs to one dispatcher that runs one thing at a time, so that
 * there are no locks; suspending functions return on the dispatcher of their caller. Listeners and handlers of topics run on
 * [Options.callbacks], one at a time and in the order of the messages; while one blocks, those behind it wait.
 *
 * @param url returns the URL of the server, ws: or wss:, before each attempt.
 */
public class Client(url: suspend () -> String, options: Options) {
    private val runtime = Runtime(options, url)
    private val timeoutMs = options.timeoutMs
    private val maxWaitMs = options.queue.maxWaitMs

    /** Encodes and decodes typed payloads. */
    public val json: Json = options.json

    /** @param url that of the server, ws: or wss:. */
    @JvmOverloads
    public constructor(url: String, options: Options = Options()) : this({ url }, options)

    // What is known

    public val state: StateFlow<State> get() = runtime.state.asStateFlow()

    /** What the server has said about the connection; null if there is none. */
    public val connection: ConnectionInfo? get() = runtime.about

    /** Returns in how many milliseconds the limits permit a message of the type; 0: now, as far as known. */
    public suspend fun nextAllowedInMs(type: String): Long = runtime.read { (runtime.core.nextAllowedIn(type) * 1000).toLong() }

    // Connecting

    /** Waits until the client is connected. It throws the error if the client stops. A closed client connects again. */
    public suspend fun connect(): Unit = runtime.connect()

    /** Ends everything that waits, and closes the connection. It waits for at most two seconds. */
    public suspend fun close(): Unit = runtime.close()

    /**
     * Says that the network has changed, or that the device has slept: the client then begins the next attempt now, unless the server
     * has demanded a delay, or checks within three seconds whether the connection still works.
     */
    public fun wake(): Unit = runtime.post { runtime.core.connection.wake() }

    /** Refreshes the identity of the connection with a new token. */
    public suspend fun authenticate(): Unit = runtime.authenticate()

    // Messages

    /**
     * Sends a call, and returns the payload of its reply. A caller that is canceled aborts the call on the server.
     *
     * @param timeoutMs milliseconds until the answer, waiting in the queue included; null: [Options.timeoutMs]. The server learns what
     * remains.
     * @param idempotent the call is sent again if the connection is lost before its answer.
     * @param onProgress is called with each progress message.
     */
    public suspend fun call(
        type: String,
        payload: JsonElement? = null,
        timeoutMs: Long? = null,
        idempotent: Boolean = false,
        onProgress: ((JsonElement?) -> Unit)? = null,
    ): JsonElement? {
        val progress = onProgress?.let { listener -> { update: JsonElement? -> runtime.listeners.call { listener(update) } } }
        val within = (timeoutMs ?: this.timeoutMs) / 1000.0
        return runtime.request(type, payload, Send(within, idempotent = idempotent, onProgress = progress))
    }

    /**
     * Sends an event. It returns when the server has admitted it, before its handler runs.
     *
     * @param maxWaitMs milliseconds that the event may wait to be sent; null: [Queue.maxWaitMs].
     */
    public suspend fun send(type: String, payload: JsonElement? = null, maxWaitMs: Long? = null) {
        runtime.request(type, payload, Send(within = (maxWaitMs ?: this.maxWaitMs) / 1000.0, oneWay = true))
    }

    /**
     * Returns the items of a stream. It is sent when the flow is collected, and ends when its collector does.
     *
     * @param timeoutMs milliseconds of the whole stream; null: no bound.
     * @param credit the most items that wait for the collector.
     * @param onReply is called with the payload of the reply before the flow ends, if the type of the stream has one.
     */
    public fun stream(
        type: String,
        payload: JsonElement? = null,
        timeoutMs: Long? = null,
        credit: Int = DEFAULT_CREDIT,
        onReply: (JsonElement) -> Unit = {},
    ): Flow<JsonElement> = itemsOf(runtime, type, payload, timeoutMs, credit, onReply)

    // Topics

    /**
     * Returns the events of a topic. Each collector is a subscription, which ends with it, and is made again after each interruption:
     * what was missed comes first. The flow fails when the server rejects the subscription, or ends it.
     *
     * A collector that is 1,000 events behind loses the next ones, which is one [Loss].
     */
    public fun topic(name: String, options: SubscribeOptions = SubscribeOptions()): Flow<TopicEvent> = eventsOf(runtime, name, options)

    /**
     * Subscribes to a topic with a handler.
     *
     * @param onEnd is called when the server has ended the subscription, or rejected it for good.
     */
    @JvmOverloads
    public fun subscribe(
        name: String,
        options: SubscribeOptions = SubscribeOptions(),
        onEnd: ((PenstockException) -> Unit)? = null,
        handler: (TopicEvent) -> Unit,
    ): Subscription {
        val ended = onEnd ?: runtime.listeners::report
        val receiver = Receiver(
            deliver = { event -> runtime.listeners.call { handler(event) } },
            ended = { error -> runtime.listeners.call { ended(error) } },
        )
        return Subscription(runtime, Sub(name, options), receiver)
    }

    // Listeners. Closing the result removes one.

    /** Adds a function that is called with each message of a type. Messages of topics are included. */
    public fun on(type: String, listener: (Message) -> Unit): AutoCloseable = runtime.listeners.onMessage(type, listener)

    /** Adds a function that is called when publications of any topic are lost. */
    public fun onLoss(listener: (Loss) -> Unit): AutoCloseable = runtime.listeners.onLoss(listener)

    /** Adds a function that is called with each state of the client. */
    public fun onState(listener: (State, StateInfo) -> Unit): AutoCloseable = runtime.listeners.onState(listener)

    /** Adds a function that is called with errors that no operation throws. Without one, they are logged by java.util.logging. */
    public fun onError(listener: (Throwable) -> Unit): AutoCloseable = runtime.listeners.onError(listener)

    /**
     * Answers calls of the server: the handler takes the payload, and returns that of the reply. It runs concurrently with others, on
     * Dispatchers.Default, and is canceled when the server stops waiting. The server receives a [PenstockException] that it throws.
     */
    public fun handle(type: String, replyType: String, handler: suspend (JsonElement?) -> JsonElement?) {
        runtime.listeners.servers[type] = handler
        runtime.core.served.replyTypes[type] = replyType
    }
}

/** Returns a client with options. */
public fun Client(url: String, configure: Options.() -> Unit): Client = Client(url, Options().apply(configure))

/** A subscription to a topic with a handler. */
public class Subscription internal constructor(private val runtime: Runtime, private val sub: Sub, private val receiver: Receiver) :
    AutoCloseable {
    init {
        runtime.subscribe(sub, receiver)
    }

    public val topic: String get() = sub.topic

    /** Waits until the server has accepted the subscription. It throws the error if the server rejects it. */
    public suspend fun ready(): Unit = receiver.ready.await()

    /** Returns up to where events were delivered; null if the topic has no history, or its state is not complete. */
    public suspend fun position(): Position? = runtime.read { runtime.core.topics.position(sub) }

    /** Ends the subscription. */
    override fun close(): Unit = runtime.unsubscribe(sub)
}
