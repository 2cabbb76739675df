package penstock.client

import kotlinx.serialization.json.JsonElement

/**
 * The client without input and output: it takes events and the time, and says what to do.
 *
 * Each method is an event. Afterwards, [takeActions] returns what must be done, in order, and [nextTimer] says when [runTimers] must
 * be called. The core has no locks: all of it belongs to the one dispatcher that Runtime uses for it.
 */
internal class Core(
    pacing: Boolean = false,
    resume: Boolean = false,
    queue: Queue = Queue(),
    stopOn: (Int) -> Boolean = { false },
    now: () -> Double,
    random: () -> Double,
) {
    private val env = Env(now, random)
    private val pacer = if (pacing) Pacer(env) else null
    val outbox = Outbox(env, pacer, queue)
    val topics = Topics(env, outbox)
    val served = Served(env, outbox)
    val connection = Connection(env, pacer, outbox, topics, served, resume, stopOn)

    // What to do

    fun takeActions(): List<Action> = env.actions.also { env.actions = ArrayList() }

    fun nextTimer(): Double? = env.timers.next()

    fun runTimers() = env.timers.run(env.now())

    // Events of connections. Those of links that the core has closed have no effect.

    fun connected(link: Link) {
        if (connection.has(link)) connection.connected(link)
    }

    /** An attempt has failed, or a connection was lost. final: the next attempt would fail like this. */
    fun failed(link: Link, cause: Throwable, final: Boolean = false) {
        if (!connection.has(link)) return
        if (final) connection.unusable(link, cause) else connection.failed(link, cause)
    }

    fun closed(link: Link, code: Int, reason: String) {
        if (connection.has(link)) connection.closed(link, code, reason)
    }

    /** A message has arrived. One that cannot be decoded has no effect. */
    fun received(link: Link, text: String) {
        if (!connection.has(link)) return
        connection.silence.heard()
        try {
            received(link, decodeFrame(text))
        } catch (cause: IllegalArgumentException) { // which the exceptions of decoders are
            env.act(Action.Report(cause))
        } catch (cause: StackOverflowError) { // of a message that is nested too deeply
            env.act(Action.Report(cause))
        }
        connection.dropRetired(link)
    }

    private fun received(link: Link, frame: Frame) {
        val ofApplication = !frame.type.startsWith("$") && frame.type != "ERROR" && frame.type != "RPC_ERROR"
        when {
            frame.type == "__heartbeat_ack" -> return
            ofApplication && frame.id.isEmpty() -> if (!link.retired) message(frame)
            frame.type == "\$ws:goaway" -> if (connection.isCurrent(link)) connection.move(frame.fields.long("reconnectAfterMs") / 1000.0)
            frame.id.startsWith("\$ws:") -> served.receive(link, frame)
            outbox.receive(link, frame) || link.retired -> return
            frame.type == "\$ws:identity-expiring" -> {
                val pause = env.random() * frame.fields.long("expiresInMs") / 2000
                env.after(pause) { env.act(Action.Refresh) }
            }

            else -> message(frame)
        }
    }

    /** Handles what is no answer: a message of a topic, or one to the client. */
    private fun message(frame: Frame) {
        if (topics.receive(frame)) return
        val message = Message(frame.type, frame.payload, frame.meta.text("topic"), timestamp = frame.timestamp)
        env.act(Action.Deliver(null, message))
    }

    // Events of the application

    /** Connects, unless that was asked for before. A closed client does not connect again. */
    private fun start() {
        if (connection.state == State.CLOSED) throw PenstockException("UNAVAILABLE", "the client is closed")
        connection.start()
    }

    /** Sends a message, or adds it to the queue. */
    fun submit(type: String, payload: JsonElement?, send: Send): Entry {
        start()
        return outbox.submit(type, payload, send)
    }

    fun subscribe(sub: Sub) {
        start()
        topics.subscribe(sub)
    }

    /** The handler of a call of the server has ended. */
    fun finished(call: ServerCall, payload: JsonElement?, error: Throwable?) = served.finished(call, payload, error)

    /** Returns in how many seconds the limits permit a message of the type; 0: now, as far as known. */
    fun nextAllowedIn(type: String): Double = pacer?.nextIn(type) ?: 0.0
}
