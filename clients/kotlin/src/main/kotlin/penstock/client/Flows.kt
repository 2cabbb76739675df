package penstock.client

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.withTimeout
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import java.util.concurrent.atomic.AtomicInteger

private const val TOKEN_TIMEOUT = 10.0 // the next refresh waits no longer for one that hangs

/** Returns the items of a stream. */
internal fun itemsOf(
    runtime: Runtime,
    type: String,
    payload: JsonElement?,
    timeoutMs: Long?,
    credit: Int,
    onReply: (JsonElement) -> Unit,
): Flow<JsonElement> = flow {
    val items = Channel<JsonElement>(Channel.UNLIMITED) // which credits bound
    val reply = CompletableDeferred<JsonElement?>()
    val send = Send(
        within = timeoutMs?.let { it / 1000.0 } ?: Double.POSITIVE_INFINITY,
        meta = mapOf("credit" to JsonPrimitive(credit)),
        onProgress = { items.trySend(it ?: JsonNull) },
        done = { error, end, _ ->
            reply.complete(end)
            items.close(error)
        },
    )
    var entry: Entry? = null // belongs to the dispatcher of the core
    runtime.post {
        try {
            entry = runtime.core.submit(type, payload, send)
        } catch (error: PenstockException) {
            items.close(error)
        }
    }
    try {
        var taken = 0
        for (item in items) {
            if (++taken * 2 >= credit) {
                val more = taken
                taken = 0
                runtime.post { entry?.let { runtime.core.outbox.grant(it, more) } }
            }
            emit(item)
        }
    } finally {
        runtime.post { entry?.let(runtime.core.outbox::cancel) }
    }
    reply.await()?.let(onReply)
}

/** Returns the events of a topic. */
internal fun eventsOf(runtime: Runtime, name: String, options: SubscribeOptions): Flow<TopicEvent> = flow {
    val events = Channel<TopicEvent>(Channel.UNLIMITED)
    val unread = AtomicInteger()
    var overflowed = false
    val deliver = { event: TopicEvent ->
        if (unread.get() < MAX_UNREAD) {
            overflowed = false
            unread.incrementAndGet()
            events.trySend(event)
        } else if (!overflowed) {
            overflowed = true
            unread.incrementAndGet()
            events.trySend(Loss(name))
        }
    }
    val subscription = Subscription(runtime, Sub(name, options), Receiver({ deliver(it) }, { events.close(it) }))
    try {
        for (event in events) {
            unread.decrementAndGet()
            emit(event)
        }
    } finally {
        subscription.close()
    }
}

/** Sends a new token. */
internal suspend fun authenticateWith(
    token: (suspend (Boolean) -> String?)?,
    clock: Clock,
    request: suspend (String, JsonElement?, Send) -> JsonElement?,
    timeoutMs: Long,
) {
    val value = try {
        withTimeout(clock.millis(TOKEN_TIMEOUT)) { token?.invoke(false) }
    } catch (hangs: TimeoutCancellationException) {
        throw PenstockException("DEADLINE_EXCEEDED", "Options.token has not returned a token within 10 s", cause = hangs)
    } ?: throw PenstockException("FAILED_PRECONDITION", "Options.token has returned no token")
    request("\$ws:auth", buildJsonObject { put("token", value) }, Send(within = timeoutMs / 1000.0, first = true))
}
