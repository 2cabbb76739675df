package penstock.client

import kotlinx.serialization.json.JsonElement

/** Called once with the outcome of a message: an error, or the payload of its reply; and its ID. */
internal typealias Done = (error: PenstockException?, payload: JsonElement?, id: String) -> Unit

/** What a message needs besides its payload. */
internal class Send(
    /** Seconds that an event may wait in the queue, and a call for its answer. */
    val within: Double = Double.POSITIVE_INFINITY,
    /** An event. One of the application is settled when the server has admitted it, one of the protocol when it is sent. */
    val oneWay: Boolean = false,
    /** A message of the protocol, which precedes those of the application. */
    val first: Boolean = false,
    val idempotent: Boolean = false,
    /** Further members of meta. */
    val meta: Map<String, JsonElement> = emptyMap(),
    val done: Done? = null,
    val onProgress: ((JsonElement?) -> Unit)? = null,
) {
    fun with(done: Done) = Send(within, oneWay, first, idempotent, meta, done, onProgress)
}

/** A message that waits to be sent, or for its answer. */
internal class Entry(
    val type: String,
    val body: String,
    val order: Long,
    val due: Double,
    val send: Send,
    val ack: Boolean,
    /** It belongs to one link, and is not sent again. */
    val direct: Boolean,
) : Comparable<Entry> {
    val weight = utf8Size(body)
    val oneWay get() = send.oneWay
    val first get() = send.first
    var id = ""

    /** That it was sent on. */
    var link: Link? = null

    /** When a message that was rejected may be sent again. */
    var notBefore = 0.0
    var admitted = false
    var over = false
    var queued = false

    /** Why it was rejected and waits. */
    var cause: PenstockException? = null
    var timer: Timer? = null

    override fun compareTo(other: Entry) = order.compareTo(other.order)
}

/** Messages that wait, in a list for each type, in the order in which they were submitted. */
internal class Waiting {
    private val lists = LinkedHashMap<String, ArrayDeque<Entry>>()
    var count = 0
        private set
    var weight = 0L
        private set

    fun insert(entry: Entry) {
        val list = lists.getOrPut(entry.type) { ArrayDeque() }
        if (list.isEmpty() || list.last() < entry) list.addLast(entry) else list.add(-list.binarySearch(entry) - 1, entry)
        entry.queued = true
        count++
        weight += entry.weight
    }

    fun remove(entry: Entry) {
        if (!entry.queued) return
        entry.queued = false
        val list = lists.getValue(entry.type)
        if (list.first() === entry) list.removeFirst() else list.remove(entry)
        if (list.isEmpty()) lists.remove(entry.type)
        count--
        weight -= entry.weight
    }

    /** Returns the first entry of each type, in their order. */
    fun heads(): List<Entry> = if (lists.size == 1) listOf(lists.values.first().first()) else lists.values.map { it.first() }.sorted()

    /** Returns all entries in their order. */
    fun all(): List<Entry> = lists.values.flatten().sorted()
}
