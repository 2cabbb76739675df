package penstock.client

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.booleanOrNull
import kotlinx.serialization.json.doubleOrNull

// Members of JSON objects, and messages. A member of another type counts as absent.

internal fun JsonObject.text(name: String): String? = (this[name] as? JsonPrimitive)?.takeIf { it.isString }?.content

internal fun JsonObject.number(name: String): Double? = (this[name] as? JsonPrimitive)?.takeIf { !it.isString }?.doubleOrNull

internal fun JsonObject.long(name: String): Long = number(name)?.toLong() ?: 0

internal fun JsonObject.flag(name: String): Boolean = (this[name] as? JsonPrimitive)?.takeIf { !it.isString }?.booleanOrNull == true

internal fun JsonObject.obj(name: String): JsonObject? = this[name] as? JsonObject

internal fun JsonObject.objects(name: String): List<JsonObject> = (this[name] as? JsonArray).orEmpty().filterIsInstance<JsonObject>()

internal fun JsonObject.position(): Position? = text("epoch")?.takeIf { it.isNotEmpty() }?.let { Position(it, long("offset")) }

/** A message that was received. */
internal class Frame(val type: String, val meta: JsonObject, val payload: JsonElement?) {
    val id: String = meta.text("correlationId").orEmpty()
    val timestamp: Long = meta.long("timestamp")

    /** The payload of a message of the protocol, which is an object. */
    val fields: JsonObject get() = payload as? JsonObject ?: JsonObject(emptyMap())
}

/** Decodes a message. It throws IllegalArgumentException if the text is no message. */
internal fun decodeFrame(text: String): Frame {
    val frame = Json.parseToJsonElement(text) as? JsonObject
    val type = requireNotNull(frame?.text("type")) { "a message of the server has no type" }
    val meta = frame["meta"] ?: JsonObject(emptyMap())
    require(meta is JsonObject) { "meta of a message of the server is no object" }
    return Frame(type, meta, frame["payload"])
}

/** Returns a message. type and meta come first, so that the server can answer a message that is too large. */
internal fun encodeFrame(type: String, meta: JsonObject, body: String): String {
    val head = """{"type":${JsonPrimitive(type)}"""
    val described = if (meta.isEmpty()) head else """$head,"meta":$meta"""
    return if (body.isEmpty()) "$described}" else """$described,"payload":$body}"""
}

/** Returns how many bytes a text has in UTF-8. */
internal fun utf8Size(text: String): Int {
    var size = text.length
    for (c in text) {
        if (c.code >= 0x800) {
            size += if (c.isSurrogate()) 1 else 2
        } else if (c.code >= 0x80) {
            size++
        }
    }
    return size
}
