package penstock.client

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlin.math.ceil
import kotlin.math.max

/** Bytes that wait for a socket. What follows waits in the queue, where it can be canceled. */
internal const val MAX_BUFFERED_BYTES = 1_000_000L
private const val BUFFER_CHECK = 0.05
private const val IN_FLIGHT_RETRY = 1.0
private const val ORDER_FIRST = 1L shl 40 // messages of the protocol precede those of the application

/** What the client sends: the queue, and the messages that wait for an answer. */
internal class Outbox(private val env: Env, private val pacer: Pacer?, private val bounds: Queue) {
    private val prefix = (env.random() * (1L shl 40)).toLong().toString(16) + "-"
    private var count = 0L
    private var link: Link? = null // that messages are sent on
    private var flushing = false
    private var timer: Timer? = null
    private val pending = LinkedHashMap<String, Entry>()
    private val waiting = Waiting()

    /** How many messages wait to be sent. */
    val waitingCount get() = waiting.count

    /** How many messages have no answer. */
    val unanswered get() = pending.size

    /** Sends a message on a link at once, or adds it to the queue. */
    fun submit(type: String, payload: JsonElement?, send: Send, on: Link? = null): Entry {
        count++
        val order = if (send.first) count - ORDER_FIRST else count
        val ack = !send.first && (send.oneWay || pacer != null)
        val entry = Entry(type, payload?.toString().orEmpty(), order, env.now() + send.within, send, ack, direct = on != null)
        if (on != null) {
            send(entry, on)
        } else if (makeRoom(entry)) {
            wait(entry)
            flush()
        }
        return entry
    }

    private fun makeRoom(entry: Entry): Boolean {
        while (!entry.first && isFull(entry)) {
            val oldest = if (bounds.overflow == Overflow.DROP_OLDEST) waiting.heads().find { !it.first } ?: entry else entry
            settle(oldest, PenstockException("RESOURCE_EXHAUSTED", "the queue is full", details("queue"), retryable = true))
            if (oldest === entry) return false
        }
        return true
    }

    private fun isFull(entry: Entry): Boolean =
        waiting.count >= bounds.maxMessages || (waiting.count > 0 && waiting.weight + entry.weight > bounds.maxBytes)

    /** Sends a message of the protocol that has no answer, on a link at once or before what waits. */
    fun tell(to: Link?, type: String, meta: Map<String, JsonElement> = emptyMap()) {
        submit(type, null, Send(oneWay = true, first = true, meta = meta), to)
    }

    // Sending

    private fun wait(entry: Entry) {
        remove(entry)
        entry.id = ""
        entry.link = null
        waiting.insert(entry)
        entry.timer?.cancel()
        if (entry.due.isFinite()) entry.timer = env.timers.add(entry.due) { expire(entry) }
    }

    private fun remove(entry: Entry) {
        waiting.remove(entry)
        if (entry.id.isNotEmpty() && pending.remove(entry.id) != null && !entry.oneWay) {
            entry.link!!.openCalls--
            entry.link!!.crowded = false
        }
        pacer?.forget(entry.type, entry.id)
    }

    private fun expire(entry: Entry) {
        settle(entry, PenstockException("DEADLINE_EXCEEDED", "the time of the message is over", retryable = true, cause = entry.cause))
    }

    /** Returns in how many seconds a message may be sent; infinite: never. An answer may also end the wait. */
    private fun waitFor(entry: Entry, link: Link): Double {
        if (link.buffered() > MAX_BUFFERED_BYTES) return BUFFER_CHECK
        if (entry.first) return 0.0
        if (!entry.oneWay && (link.crowded || link.openCalls >= env.welcome.concurrency)) return FOR_ANSWER
        return max(entry.notBefore - env.now(), pacer?.wait(entry.type, entry.notBefore) ?: 0.0)
    }

    /** Sends what may be sent. */
    fun flush() {
        if (flushing) return // a message that is sent may be settled
        flushing = true
        timer?.cancel()
        while (waiting.count > 0) {
            val to = link ?: break
            if (!sendNext(to)) break
        }
        flushing = false
    }

    /** Sends the next message. Returns false if there is none that may be sent now. */
    private fun sendNext(to: Link): Boolean {
        var soonest = FOR_ANSWER
        pacer?.search()
        for (entry in waiting.heads()) {
            val wait = waitFor(entry, to)
            if (wait > 0 && wait.isFinite()) {
                soonest = minOf(soonest, wait)
                continue
            }
            waiting.remove(entry)
            if (wait > 0) {
                val message = "the message costs more than the limit can ever allow"
                settle(entry, PenstockException("FAILED_PRECONDITION", message, retryAfterMs = PenstockException.NEVER))
            } else {
                send(entry, to)
            }
            return true
        }
        if (soonest < FOR_ANSWER) timer = env.after(soonest, ::flush)
        return false
    }

    private fun send(entry: Entry, to: Link) {
        // The timer is late. A message that may not wait at all is not.
        if (entry.due.isFinite() && env.now() >= entry.due + 0.001) return expire(entry)
        if (entry.oneWay) entry.timer?.cancel() // only waiting is bounded
        if (entry.ack || !entry.oneWay) {
            count++
            entry.id = "$prefix$count${if (entry.oneWay) "e" else ""}" // only IDs of calls end with a digit
            entry.link = to
            pending[entry.id] = entry
            if (!entry.oneWay) to.openCalls++
        }
        val text = encodeFrame(entry.type, metaOf(entry), entry.body)
        val limit = env.welcome.maxBytes(entry.type)
        val size = if (limit == null) 0 else utf8Size(text)
        if (limit != null && size > limit) return tooBig(entry, size, limit)
        pacer?.sent(entry.type, entry.id, entry.first)
        env.act(Action.Write(to, text))
        if (entry.id.isEmpty()) settle(entry)
    }

    private fun metaOf(entry: Entry): JsonObject = buildJsonObject {
        if (entry.id.isNotEmpty()) put("correlationId", entry.id)
        if (entry.ack) put("ack", true)
        if (!entry.oneWay && entry.due.isFinite()) put("timeoutMs", max(1, ceil((entry.due - env.now()) * 1000).toLong()))
        entry.send.meta.forEach(::put)
    }

    private fun tooBig(entry: Entry, observed: Int, limit: Long? = null) {
        val details = JsonObject(details("payload") + mapOf("observed" to JsonPrimitive(observed), "limit" to JsonPrimitive(limit)))
        settle(entry, PenstockException("RESOURCE_EXHAUSTED", "message is too big", details, retryAfterMs = PenstockException.NEVER))
    }

    // Outcomes

    private fun settle(entry: Entry, error: PenstockException? = null, payload: JsonElement? = null, id: String = "") {
        if (entry.over) return
        entry.over = true
        entry.timer?.cancel()
        remove(entry)
        entry.send.done?.invoke(error, payload, id)
        flush()
    }

    /** Ends a message that its caller does not need any more. */
    fun cancel(entry: Entry) {
        if (entry.over) return
        if (!entry.oneWay && entry.id in pending) tell(entry.link, "\$ws:abort", mapOf("correlationId" to JsonPrimitive(entry.id)))
        settle(entry, PenstockException("CANCELLED", "canceled"))
    }

    /** Grants a stream further items. */
    fun grant(entry: Entry, credit: Int) {
        val on = entry.link
        if (entry.over || on == null) return
        val meta = mapOf("correlationId" to JsonPrimitive(entry.id), "credit" to JsonPrimitive(credit))
        tell(if (on === link) null else on, "\$ws:credit", meta)
    }

    /** Handles a message if it is an answer or an error, and reports whether it is one. */
    fun receive(on: Link, frame: Frame): Boolean {
        val error = if (frame.type == "ERROR" || frame.type == "RPC_ERROR") decodeError(frame.payload) else null
        val entry = pending[frame.id]
        if (entry != null && entry.link === on) {
            answered(entry, on, frame, error)
        } else if (error != null && frame.id.lastOrNull()?.isDigit() != true) {
            // The error has no ID, or that of an event which was admitted before its handler failed.
            env.act(Action.Report(error))
        }
        return frame.id.isNotEmpty() || error != null
    }

    private fun answered(entry: Entry, on: Link, frame: Frame, error: PenstockException?) {
        val rejected = error != null && !entry.admitted
        pacer?.confirm(entry.id, rejected)
        if (rejected && !entry.direct && sendAgain(entry, on, error!!, frame.timestamp)) return
        when (frame.type) {
            "\$ws:rpc-progress" -> entry.send.onProgress?.invoke(frame.payload)

            "\$ws:ack" -> {
                entry.admitted = true
                pacer?.forget(entry.type, entry.id)
                if (entry.oneWay) settle(entry)
                flush()
            }

            else -> settle(entry, error, frame.payload, entry.id)
        }
    }

    /** Queues a message again, in order, if a limit has rejected it for some time, and reports whether it has done so. */
    private fun sendAgain(entry: Entry, on: Link, error: PenstockException, timestamp: Long): Boolean {
        val inFlight = !entry.oneWay && error.details.text("kind") == "in_flight"
        val retryAfter = error.retryAfter ?: 0.0
        pacer?.rejected(entry.type, error, timestamp / 1000.0)
        val again = if (inFlight) {
            pacer != null || error.details.number("limit")?.toInt() == env.welcome.concurrency
        } else {
            pacer != null && retryAfter > 0
        }
        if (!error.retryable || !again) return false
        wait(entry)
        entry.cause = error
        on.crowded = inFlight && on.openCalls > 0
        val pause = if (retryAfter > 0) {
            retryAfter
        } else if (on.crowded) {
            0.0
        } else {
            IN_FLIGHT_RETRY
        }
        entry.notBefore = env.now() + pause
        flush()
        return true
    }

    // Connections

    /** Sends what waits on a link. Without one, requests of the protocol end: they are made again. */
    fun use(link: Link?) {
        this.link = link
        if (link == null) waiting.all().filter { it.first }.forEach { drop(it) }
        flush()
    }

    /** Ends what a link has sent and what has no answer. tooBig: because of one of these messages. */
    fun lost(link: Link, tooBig: Boolean) {
        // The server does not say which one was too big.
        unansweredOn(link).sortedByDescending { it.weight }.forEachIndexed { n, entry -> drop(entry, tooBig && n == 0) }
    }

    /** Reports whether everything that a link has sent has an answer. */
    fun isIdle(link: Link): Boolean = pending.values.none { it.link === link }

    private fun unansweredOn(link: Link): List<Entry> = pending.values.filter { it.link === link }

    private fun drop(entry: Entry, tooBig: Boolean = false) {
        if (tooBig && entry.send.idempotent) {
            tooBig(entry, entry.weight)
        } else if (entry.send.idempotent && !entry.over) {
            wait(entry)
            flush()
        } else {
            val message = "the connection was lost; the message may have been handled"
            settle(entry, PenstockException("ABORTED", message, outcomeUnknown = true))
        }
    }

    /** Ends everything that waits. */
    fun endAll(error: PenstockException) = waiting.all().forEach { settle(it, error) }
}

private fun details(kind: String) = JsonObject(mapOf("kind" to JsonPrimitive(kind)))
