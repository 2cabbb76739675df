package penstock.client

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.doubleOrNull
import kotlin.math.ceil
import kotlin.math.max
import kotlin.math.min

// Models of the server's buckets. They never hold more tokens than those do, unless other connections take from them. Times are in
// seconds.

private const val SAFETY = 0.998 // of the refill rate: clocks differ by up to a tenth of a percent
private const val ROUNDING = 0.003 // of the two times from which a rate is learned
private const val MAX_LEARNED = 512 // messages by a learned rate, until one message checks it
private const val PATIENCE = 1.0 // for a bucket whose level is unknown; after that, one message tries it
private const val RESOLUTION = 0.001 // of waits, which are rounded up

/** Longer than any timer. */
internal const val FOR_ANSWER = 1e9

/** In place of a wait: the message may be rejected. */
private const val UNCERTAIN = -1.0

/** Messages that must not overtake each other: those of one type, or those that take tokens from one bucket. */
private class Lane {
    /** The message whose outcome is awaited. */
    var awaited = ""

    /** When its first message may be sent, which was rejected. */
    var notBefore = 0.0

    /** The last search in which one of its messages had to wait. */
    var closedIn = 0
}

/**
 * @property costs by type; null: it depends on the message.
 * @property rate in tokens per second; 0: it is learned.
 * @property exclusive the level is exact.
 */
private class Bucket(
    private val env: Env,
    val capacity: Double,
    private val costs: Map<String, Double?>,
    private val keep: Map<String, Double?> = emptyMap(),
    private var rate: Double = 0.0,
    private var level: Double = 0.0,
    private var exclusive: Boolean = false,
) {
    private val learns = rate == 0.0
    val lane = Lane()
    private var at = env.now() // of the level; in the future after a rejection
    private var unconfirmed = 0.0 // costs of messages that are not known to have arrived
    private var sure = if (learns) 0.0 else Double.POSITIVE_INFINITY // messages that may be sent by this model; then one at a time
    private var quota = 1
    private var admitted = 0.0 // cost since the first rejection
    private var firstReady = 0.0 // after the first rejection, by the clock of the server

    /** Returns the cost of a type; null: it is unknown. */
    private fun cost(type: String): Double? = if (type in costs) costs[type] else 0.0

    fun applies(type: String): Boolean = cost(type) != 0.0

    private fun need(type: String): Double = (cost(type) ?: 0.0) + (keep[type] ?: 0.0)

    private fun refill() {
        val elapsed = env.now() - at
        if (elapsed <= 0) return
        at += elapsed
        // While messages have not arrived, the full bucket of the server may lose what returns.
        level = min(max(level, capacity - unconfirmed), level + elapsed * rate)
    }

    /** Returns in how many seconds a message may be sent; 0: it is admitted; infinite: it is never admitted. */
    fun wait(type: String): Double {
        val tokens = need(type)
        if (tokens > capacity) return Double.POSITIVE_INFINITY
        refill()
        val trusted = sure > 0
        var pause = at - env.now()
        if (rate > 0 && (trusted || !learns) && level < tokens) pause = max(pause, (tokens - level) / rate)
        if (!exclusive && trusted && !learns && pause > PATIENCE) return UNCERTAIN
        if (pause > 0) return pause
        return if (rate > 0 && trusted && cost(type) != null) 0.0 else UNCERTAIN
    }

    /** Takes the cost of a message. The result is called when the message is known to have arrived. */
    fun take(type: String): (rejected: Boolean) -> Unit {
        refill()
        val known = cost(type)
        val cost = known ?: level
        level = max(0.0, level - cost)
        unconfirmed += cost
        admitted += cost
        sure--
        return { rejected ->
            refill()
            unconfirmed -= cost
            if (rejected) {
                admitted -= cost
            } else if (known == null) {
                level = 0.0
            }
        }
    }

    /** ready: when the message is admitted, by the clock of the server; 0: not because tokens have returned. */
    fun denied(type: String, retryAfter: Double, ready: Double) {
        exclusive = true
        level = need(type)
        at = env.now() + retryAfter
        sure = 0.0 // other connections take from the bucket
        if (!learns) return
        if (firstReady != 0.0 && ready != 0.0) {
            rate = admitted / (ready - firstReady + ROUNDING)
        } else {
            firstReady = ready
            admitted = 0.0
        }
        quota = min(2 * quota, MAX_LEARNED)
        sure = quota.toDouble()
    }
}

private class Route(val buckets: List<Bucket>, val lanes: List<Lane>)

private fun numbers(by: JsonObject?): Map<String, Double?> = by.orEmpty().mapValues { (_, value) ->
    (value as? JsonPrimitive)?.doubleOrNull
}

/** Says when a message may be sent. */
internal class Pacer(private val env: Env) {
    private var announced = ArrayList<Bucket>()
    private val routes = HashMap<String, Route>() // by type
    private val unknown = LinkedHashMap<String, List<(Boolean) -> Unit>>() // sent, and not known to have arrived, in order
    private var search = 0

    private fun route(type: String): Route = routes.getOrPut(type) {
        val buckets = announced.filter { it.applies(type) }
        Route(buckets, listOf(Lane()) + buckets.map { it.lane })
    }

    /** Returns the longest wait of the buckets. Negative: the message may be rejected. */
    private fun waitOf(type: String): Double {
        val waits = route(type).buckets.map { it.wait(type) }
        val longest = waits.maxOrNull() ?: 0.0
        if (longest == Double.POSITIVE_INFINITY) return longest
        if (longest > 0) return ceil(longest / RESOLUTION) * RESOLUTION
        // A type without announced cost may have a limit that is not announced.
        return waits.minOrNull() ?: UNCERTAIN
    }

    /** A connection begins: it is unknown what was admitted. */
    fun restart() {
        announced = ArrayList()
        routes.clear()
        unknown.clear()
    }

    /** Takes the limits of a welcome, before other messages are sent than those of the greeting. */
    fun announce(limits: List<JsonObject>) {
        routes.clear()
        announced = ArrayList()
        for (limit in limits) {
            val exclusive = limit.text("scope") == "connection"
            val capacity = limit.number("capacity") ?: 0.0
            val rate = (limit.number("refill") ?: 0.0) / (limit.number("refillMs") ?: 1.0) * 1000 * SAFETY
            for (bucket in limit.objects("buckets")) {
                val costs = numbers(bucket.obj("costs"))
                val greeting = (costs["\$ws:hello"] ?: 0.0) + (costs["\$ws:resume"] ?: 0.0)
                val level = if (exclusive) max(0.0, capacity - greeting) else 0.0
                announced.add(Bucket(env, capacity, costs, numbers(bucket.obj("keep")), rate, level, exclusive))
            }
        }
    }

    /** Begins to look for a message that may be sent. */
    fun search() {
        search++
    }

    /**
     * Returns in how many seconds a message may be sent, which was rejected until notBefore. If it must wait, so must those behind
     * it in its lanes, in the same search. Infinite: it is never admitted.
     */
    fun wait(type: String, notBefore: Double): Double {
        val lanes = route(type).lanes
        lanes[0].notBefore = notBefore
        var wait = waitOf(type)
        if (wait == Double.POSITIVE_INFINITY) return wait
        if (lanes.any { it.awaited.isNotEmpty() || it.closedIn == search }) wait = FOR_ANSWER
        wait = max(notBefore - env.now(), wait)
        if (wait > 0) lanes.forEach { it.closedIn = search }
        return wait
    }

    /** Takes the cost of a message. Behind one that may be rejected, nothing is sent in its lanes. */
    fun sent(type: String, id: String, first: Boolean) {
        val uncertain = id.isNotEmpty() && !first && waitOf(type) < 0
        val route = route(type)
        val arrivals = route.buckets.map { it.take(type) }
        if (id.isNotEmpty()) unknown[id] = arrivals else arrivals.forEach { it(false) } // without an answer
        if (uncertain) route.lanes.forEach { it.awaited = id }
    }

    /** An answer to the message of the id shows that it has arrived, and all before it. */
    fun confirm(id: String, rejected: Boolean) {
        if (id !in unknown) return
        for (each in unknown.keys.toList()) {
            unknown.remove(each)!!.forEach { it(rejected && each == id) }
            if (each == id) return
        }
    }

    /** The outcome of a message is known, or does not matter any more. */
    fun forget(type: String, id: String) {
        if (id.isNotEmpty()) route(type).lanes.forEach { if (it.awaited == id) it.awaited = "" }
    }

    /** A limit has rejected a message, at a time of the server's clock. */
    fun rejected(type: String, error: PenstockException, timestamp: Double) {
        val pause = error.retryAfter ?: return
        if (error.details.text("kind") != "rate" || pause == 0.0 || !pause.isFinite()) return
        val limit = error.details.number("limit") ?: 0.0
        val route = route(type)
        var exhausted = route.buckets.filter { it.capacity == limit }
        if (exhausted.isEmpty()) {
            exhausted = listOf(Bucket(env, limit, mapOf(type to (error.details.number("observed") ?: 0.0))))
            routes[type] = Route(announced.filter { it.applies(type) } + exhausted, route.lanes)
        }
        val tokensReturn = error.details.text("reason").isNullOrEmpty()
        exhausted.forEach { it.denied(type, pause, if (tokensReturn) timestamp + pause else 0.0) }
    }

    /** Returns in how many seconds a message of the type may be sent. */
    fun nextIn(type: String): Double = maxOf(0.0, waitOf(type), route(type).lanes[0].notBefore - env.now())
}
