package penstock.client

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.map
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.decodeFromJsonElement
import kotlinx.serialization.json.encodeToJsonElement

// Payloads as classes with @Serializable. A payload that does not have the members of its class is a SerializationException.

/** Sends a call with a payload of type [Q], and returns the payload of its reply as an [R]: see [Client.call]. */
public suspend inline fun <reified Q, reified R> Client.call(
    type: String,
    payload: Q,
    timeoutMs: Long? = null,
    idempotent: Boolean = false,
): R = decode(call(type, json.encodeToJsonElement(payload), timeoutMs, idempotent, onProgress = null))

/** Sends an event with a payload of type [Q]: see [Client.send]. */
public suspend inline fun <reified Q> Client.send(type: String, payload: Q, maxWaitMs: Long? = null) {
    send(type, json.encodeToJsonElement(payload), maxWaitMs)
}

/** Returns the items of a stream as [T]s: see [Client.stream]. */
public inline fun <reified Q, reified T> Client.stream(
    type: String,
    payload: Q,
    timeoutMs: Long? = null,
    credit: Int = DEFAULT_CREDIT,
    noinline onReply: (JsonElement) -> Unit = {},
): Flow<T> = stream(type, json.encodeToJsonElement(payload), timeoutMs, credit, onReply).map { decode(it) }

/** Answers calls of the server with payloads of type [Q] by replies of type [R]: see [Client.handle]. */
public inline fun <reified Q, reified R> Client.handle(type: String, replyType: String, crossinline handler: suspend (Q) -> R) {
    handle(type, replyType) { request: JsonElement? -> json.encodeToJsonElement(handler(decode(request))) }
}

/** Returns the payload of a message as a [T]. */
public inline fun <reified T> Client.decode(message: Message): T = decode(message.payload)

/** Returns a payload as a [T]. One that is absent is that of a class without members. */
public inline fun <reified T> Client.decode(payload: JsonElement?): T = json.decodeFromJsonElement(payload ?: JsonObject(emptyMap()))
