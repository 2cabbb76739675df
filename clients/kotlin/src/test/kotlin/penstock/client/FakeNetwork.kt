package penstock.client

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonPrimitive
import java.util.concurrent.CopyOnWriteArrayList

/**
 * A network in memory, with a server that answers greetings, calls and subscriptions to a topic with a history. When the network
 * changes, or the device sleeps, its sockets are silent: nothing arrives any more, and nothing says so.
 */
internal class FakeNetwork : Transport {
    private val sockets = CopyOnWriteArrayList<FakeSocket>()
    private val history = ArrayList<Long>() // offsets of publications
    val tokens = CopyOnWriteArrayList<String?>()

    /** How many connections there were. */
    val connections get() = sockets.size

    override fun connect(url: String, token: String?, listener: SocketListener): Socket {
        require(url.startsWith("ws:")) { "the URL $url does not begin with ws:" }
        tokens.add(token)
        return FakeSocket(listener).also {
            sockets.add(it)
            listener.opened()
        }
    }

    /** All sockets are silent from now on. New ones work. */
    fun change() = sockets.forEach { it.silent = true }

    /** Publishes the next offset on all topics. */
    @Synchronized
    fun publish() {
        history.add(history.size + 1L)
        sockets.forEach { socket -> socket.topics.forEach { socket.publication(it, history.last()) } }
    }

    /** Sends a message on the latest connection. */
    fun push(type: String, payload: String, meta: Map<String, JsonElement> = emptyMap()) = sockets.last().send(type, payload, meta)

    /** The server has sent a close frame, and the connection has ended. */
    fun close(code: Int, reason: String) = sockets.last().run {
        silent = true
        listener.closed(code, reason)
    }

    private inner class FakeSocket(val listener: SocketListener) : Socket {
        @Volatile
        var silent = false
        val topics = CopyOnWriteArrayList<String>()
        override val buffered get() = 0L

        override fun write(text: String) {
            if (!silent) synchronized(this@FakeNetwork) { answer(decodeFrame(text)) }
        }

        override fun close(code: Int) {
            if (!silent) listener.closed(code, "")
        }

        override fun abort() {
            silent = true
        }

        private fun answer(frame: Frame) {
            val id = mapOf("correlationId" to JsonPrimitive(frame.id))
            when (frame.type) {
                "\$ws:hello" -> send("\$ws:welcome", WELCOME, id)
                "\$ws:auth" -> send("\$ws:authenticated", "{}", id).also { tokens.add(frame.fields.text("token")) }
                "\$ws:subscribe" -> subscribe(frame, id)
                "__heartbeat" -> send("__heartbeat_ack", "")
                "ECHO" -> send("ECHO", frame.payload.toString(), id)
                "SAY" -> send("\$ws:ack", "", id)
                "EXPORT" -> repeat(3) { send("\$ws:rpc-progress", """{"id":$it}""", id) }.also { send("EXPORTED", """{"rows":3}""", id) }
                "BIG_EXPORT" -> repeat(frame.meta.long("credit").toInt()) { send("\$ws:rpc-progress", "$it", id) }
            }
            received.add(frame)
        }

        private fun subscribe(frame: Frame, id: Map<String, JsonElement>) {
            val topic = frame.fields.text("topic")!!
            if (topic == "forbidden") {
                return send("RPC_ERROR", """{"code":"PERMISSION_DENIED","message":"no","retryable":false}""", id)
            }
            val from = frame.fields.number("offset")?.toLong() ?: history.size.toLong()
            topics.add(topic)
            send("\$ws:subscribed", """{"topic":"$topic","epoch":"K","offset":$from,"recovered":true}""", id)
            history.filter { it > from }.forEach { publication(topic, it) }
        }

        fun publication(topic: String, offset: Long) =
            send("SAID", """{"n":$offset}""", mapOf("topic" to JsonPrimitive(topic), "offset" to JsonPrimitive(offset)))

        fun send(type: String, payload: String, meta: Map<String, JsonElement> = emptyMap()) {
            if (!silent) listener.received(encodeFrame(type, kotlinx.serialization.json.JsonObject(meta), payload))
        }
    }

    /** What the server has received, in order. */
    val received = CopyOnWriteArrayList<Frame>()
}
