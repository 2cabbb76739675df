package penstock.client

import kotlinx.serialization.json.JsonObject

private const val MAX_REQUESTS = 16 // without an answer

/** A subscription of the application. */
internal class Sub(val topic: String, val options: SubscribeOptions = SubscribeOptions()) {
    /** Not requested yet, without an epoch if it begins with the latest publications. */
    var since: Position? = options.since?.takeIf { it.epoch.isNotEmpty() } ?: if (options.last > 0) Position("", 0) else null

    /** Up to where it skips publications, because another one begins at an older position. */
    var handled = 0L
    var ended = false
}

/** The topics of a client. */
internal class Topics(val env: Env, val outbox: Outbox) {
    /** A connection carries messages. */
    var open = false
        private set
    var connections = 0
        private set

    /** Requests without an answer. */
    var requests = 0
    private val topics = LinkedHashMap<String, Topic>()
    private var waitUntil = 0.0

    private fun find(name: String): Topic = topics.getOrPut(name) { Topic(this, name) }

    fun mayRequest(): Boolean = open && requests < MAX_REQUESTS && env.now() >= waitUntil

    /** Sends no further requests for a time. */
    fun pause(seconds: Double) {
        waitUntil = env.now() + seconds
        env.timers.add(waitUntil, ::sync)
    }

    fun forget(name: String) {
        topics.remove(name)
    }

    fun sync() = topics.values.toList().forEach { it.sync() }

    fun subscribe(sub: Sub) = find(sub.topic).add(sub)

    fun unsubscribe(sub: Sub) {
        if (sub.ended) return
        sub.ended = true
        topics[sub.topic]?.remove(sub)
    }

    fun position(sub: Sub): Position? = topics[sub.topic]?.positionOf(sub)

    /** Returns topics and positions for a new connection. */
    fun resumable(): List<JsonObject> = topics.values.map { it.request() }

    /** A connection is open. results is the answer to the topics above if the session continues. */
    fun opened(results: List<JsonObject>) {
        connections++
        open = true
        requests = 0
        waitUntil = 0.0
        // Others are subscribed again.
        val resumed = results.filter { it.obj("error") == null }.associateByTo(LinkedHashMap()) { it.text("topic").orEmpty() }
        for ((name, topic) in topics.entries.map { it.key to it.value }) topic.opened(resumed.remove(name))
        for ((name, result) in resumed) find(name).subscribedByServer(result)
        sync()
    }

    /** Says whether a connection carries messages. forget: the next one may be of another user. */
    fun online(open: Boolean, forget: Boolean = false) {
        this.open = open
        if (forget) topics.values.forEach { it.forgetPosition() }
        sync()
    }

    /** Handles a message of the server about a topic, and reports whether it is one. */
    fun receive(frame: Frame): Boolean {
        val name = frame.meta.text("topic")
            ?: (if (frame.type.startsWith("\$ws:")) frame.fields.text("topic") else null)
            ?: return false
        if (frame.type == "\$ws:subscribed") {
            find(name).subscribedByServer(frame.fields)
            return true
        }
        val topic = topics[name] ?: return false
        topic.receive(frame)
        return true
    }
}
