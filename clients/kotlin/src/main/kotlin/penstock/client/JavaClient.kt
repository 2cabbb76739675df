package penstock.client

import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.future.await
import kotlinx.coroutines.future.future
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CompletionStage
import java.util.function.BiConsumer
import java.util.function.Consumer
import java.util.function.Function

/**
 * A [Client] for programs in Java: payloads are texts of JSON, and what takes time returns a future. Canceling the future of a call
 * aborts the call. Futures that fail have a [PenstockException].
 */
public class JavaClient(public val client: Client) {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    /** @param url that of the server, ws: or wss:. */
    @JvmOverloads
    public constructor(url: String, options: Options = Options()) : this(Client(url, options))

    /** Completes when the client is connected. */
    public fun connect(): CompletableFuture<Void?> = run { client.connect() }

    /** Sends a call; the future has the payload of its reply, or null. */
    public fun call(type: String, payload: String?): CompletableFuture<String?> = call(type, payload, null)

    /** @param timeoutMs milliseconds until the answer, waiting in the queue included; null: [Options.timeoutMs]. */
    public fun call(type: String, payload: String?, timeoutMs: Long?): CompletableFuture<String?> =
        scope.future { client.call(type, parse(payload), timeoutMs)?.toString() }

    /** Sends an event; the future completes when the server has admitted it. */
    public fun send(type: String, payload: String?): CompletableFuture<Void?> = run { client.send(type, parse(payload)) }

    /** Adds a function that is called with each message of a type: see [Client.on]. */
    public fun on(type: String, listener: Consumer<Message>): AutoCloseable = client.on(type) { listener.accept(it) }

    /** Adds a function that is called when publications of any topic are lost. */
    public fun onLoss(listener: Consumer<Loss>): AutoCloseable = client.onLoss { listener.accept(it) }

    /** Adds a function that is called with each state of the client. */
    public fun onState(listener: BiConsumer<State, StateInfo>): AutoCloseable =
        client.onState { state, info -> listener.accept(state, info) }

    /** Adds a function that is called with errors that no future has. */
    public fun onError(listener: Consumer<Throwable>): AutoCloseable = client.onError { listener.accept(it) }

    /** Subscribes to a topic: see [Client.subscribe]. */
    public fun subscribe(topic: String, options: SubscribeOptions, handler: Consumer<TopicEvent>): Subscription =
        client.subscribe(topic, options) { handler.accept(it) }

    /** Answers calls of the server with the payloads of replies: see [Client.handle]. */
    public fun handle(type: String, replyType: String, handler: Function<String?, CompletionStage<String?>>) {
        client.handle(type, replyType) { request: JsonElement? -> parse(handler.apply(request?.toString()).await()) }
    }

    /** Ends everything that waits, and closes the connection. */
    public fun close(): CompletableFuture<Void?> = run { client.close() }

    private fun run(work: suspend () -> Unit): CompletableFuture<Void?> = scope.future {
        work()
        null
    }

    private fun parse(payload: String?): JsonElement? = payload?.let { text ->
        try {
            Json.parseToJsonElement(text)
        } catch (cause: IllegalArgumentException) {
            throw PenstockException("INVALID_ARGUMENT", "the payload is not JSON: ${cause.message}", cause = cause)
        }
    }
}
