package penstock.client

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put

/**
 * The error of a message: from the server, or from the client if the message has no outcome.
 *
 * @property code one of the codes in section 4 of the protocol, or a code of the application.
 * @property details data for programs, for example the kind of a limit.
 * @property retryable whether the same message may succeed later, and is safe to send again.
 * @property retryAfterMs milliseconds to wait before the next attempt. Null: unknown. [NEVER]: no wait helps.
 * @property outcomeUnknown the connection was lost before the outcome was known: the server may have handled the message.
 */
public class PenstockException @JvmOverloads constructor(
    public val code: String,
    override val message: String = "",
    public val details: JsonObject = JsonObject(emptyMap()),
    public val retryable: Boolean = false,
    public val retryAfterMs: Long? = null,
    public val outcomeUnknown: Boolean = false,
    cause: Throwable? = null,
) : Exception(message, cause) {
    override fun toString(): String = if (message.isEmpty()) "PenstockException: $code" else "PenstockException: $code: $message"

    /** Seconds to wait; infinite if no wait helps. */
    internal val retryAfter: Double?
        get() = if (retryAfterMs == NEVER) Double.POSITIVE_INFINITY else retryAfterMs?.let { it / 1000.0 }

    public companion object {
        /** In [retryAfterMs]: the same message is never accepted. */
        public const val NEVER: Long = Long.MAX_VALUE
    }
}

/** Returns an error whose message is the text of its cause. */
internal fun causedBy(code: String, cause: Throwable) = PenstockException(code, cause.message ?: cause.javaClass.simpleName, cause = cause)

/** Returns the error in the payload of ERROR or RPC_ERROR, or in the reason of a close frame. */
internal fun decodeError(payload: JsonElement?): PenstockException {
    val p = payload as? JsonObject ?: JsonObject(emptyMap())
    val retryAfter = p["retryAfterMs"]
    return PenstockException(
        p.text("code") ?: "INTERNAL",
        p.text("message").orEmpty(),
        p.obj("details") ?: JsonObject(emptyMap()),
        p.flag("retryable"),
        // A negative delay would be no wait at all.
        if (retryAfter == JsonNull) PenstockException.NEVER else p.number("retryAfterMs")?.toLong()?.coerceAtLeast(0),
    )
}

/** Returns the payload of an error for the server. */
internal fun encodeError(error: PenstockException) = buildJsonObject {
    put("code", error.code)
    put("message", error.message)
    put("retryable", error.retryable)
    if (error.details.isNotEmpty()) put("details", error.details)
    error.retryAfterMs?.let { put("retryAfterMs", if (it == PenstockException.NEVER) null else it) }
}
