package penstock.client

import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlin.math.min
import kotlin.math.pow

// When the client connects again after a connection has ended; section 5 of the protocol.

/** Returns the error of a close frame. A reason that is not the JSON of an error is text for developers. */
internal fun closeError(code: Int, reason: String): PenstockException {
    val payload = try {
        Json.parseToJsonElement(reason) as? JsonObject
    } catch (_: SerializationException) {
        null
    }
    if (payload != null) return decodeError(payload)
    return PenstockException("UNAVAILABLE", "the connection has ended with $code $reason".trimEnd())
}

/** Returns a random delay, whose upper bound doubles with each attempt. */
internal fun backoff(attempt: Int, random: Double, least: Double = MIN_BACKOFF): Double =
    LEAST_DELAY + random * min(MAX_BACKOFF, least * 2.0.pow(min(attempt, 30)))

/** Returns what is added to the delay that the server demands, or 0. */
internal fun backoffAfter(code: Int, demanded: Double, attempt: Int, random: () -> Double): Double {
    val spread = if (demanded > 0 || attempt > 0 || code !in RESTART) 0.0 else random() * RESTART_SPREAD
    return spread + backoff(attempt, random(), if (demanded > 0 || code !in BUSY) MIN_BACKOFF else BUSY_BACKOFF)
}
