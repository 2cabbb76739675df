package penstock.client

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import java.util.PriorityQueue

// What every part of the core needs: the time, timers, and what the core asks for. The core does no input and output, and has no
// coroutines: it takes events and the time, and adds what to do to Env.actions, which Runtime executes in order after each event.

/** A function that is called once, unless the timer is canceled. */
internal class Timer(private val timers: Timers, val at: Double, var function: (() -> Unit)?) {
    fun cancel() {
        if (function != null) {
            function = null
            timers.canceled()
        }
    }
}

/** Timers in the order of their times. Canceled ones leave when they are the first, or the most. */
internal class Timers {
    private val queue = PriorityQueue<Timer>(compareBy { it.at })
    private var canceled = 0

    fun add(at: Double, function: () -> Unit): Timer = Timer(this, at, function).also(queue::add)

    fun canceled() {
        canceled++
        if (canceled > 64 && canceled > queue.size / 2) {
            queue.removeAll { it.function == null }
            canceled = 0
        }
    }

    fun next(): Double? {
        while (queue.peek()?.let { it.function == null } == true) {
            queue.poll()
            canceled--
        }
        return queue.peek()?.at
    }

    fun run(now: Double) {
        while (true) {
            if ((next() ?: return) > now) return
            val timer = queue.poll()!!
            val function = timer.function!!
            timer.function = null
            function()
        }
    }

    fun clear() {
        queue.forEach { it.function = null }
        queue.clear()
        canceled = 0
    }
}

/**
 * One connection, from the attempt to open it. Everything that belongs to a connection refers to its link.
 *
 * @property expired the server has rejected the last token.
 */
internal class Link(val expired: Boolean) {
    /** Returns how many bytes were not written to the socket yet. */
    var buffered: () -> Long = { 0 }

    /** Calls without an answer. */
    var openCalls = 0

    /** The server permits no other call before one is answered. */
    var crowded = false

    /** The link has been replaced: only answers to its calls count. */
    var retired = false

    /** Calls of the server whose handlers run. */
    val serving = HashMap<String, ServerCall>()
    var about = ConnectionInfo()
}

/** A call of the server. */
internal class ServerCall(val link: Link, val id: String, val type: String, val payload: JsonElement?) {
    /** The server does not wait for the answer any more. */
    var over = false
    var timer: Timer? = null
}

/** What the core asks for. */
internal sealed interface Action {
    /** Open a connection for the link. */
    class Dial(val link: Link) : Action

    /** Write a message. */
    class Write(val link: Link, val text: String) : Action

    /** Close the connection of the link, without a code at once, or give up the attempt. Its further events are ignored. */
    class Close(val link: Link, val code: Int?) : Action

    /** Run the handler of a call of the server. */
    class Serve(val call: ServerCall) : Action

    /** Cancel the handler of a call of the server. */
    class CancelServe(val call: ServerCall) : Action

    /** The identity is about to expire: authenticate with another token. */
    data object Refresh : Action

    /** Pass an event to a subscription, or without one to the listeners of the client. */
    class Deliver(val sub: Sub?, val event: TopicEvent) : Action

    /** The server has accepted a subscription. */
    class Subscribed(val sub: Sub) : Action

    /** The server has ended a subscription. */
    class Ended(val sub: Sub, val error: PenstockException) : Action

    /** Report an error that belongs to no operation. */
    class Report(val error: Throwable) : Action

    /** The state of the client has changed. */
    class StateChanged(val state: State, val info: StateInfo) : Action
}

/**
 * The time, timers, and actions of one client.
 *
 * @property now returns the seconds of a clock that does not jump.
 * @property random returns numbers from 0 to 1, without 1.
 */
internal class Env(val now: () -> Double, val random: () -> Double) {
    val timers = Timers()
    var actions = ArrayList<Action>()

    /** The latest answer to a greeting. */
    var welcome = Welcome(JsonObject(emptyMap()))

    fun after(seconds: Double, function: () -> Unit): Timer = timers.add(now() + seconds, function)

    fun act(action: Action) {
        actions.add(action)
    }
}

/** The answer to a greeting. */
internal class Welcome(val fields: JsonObject) {
    private val maxMessageBytes = fields.number("maxMessageBytes")
    private val maxBytesByType = fields.obj("maxMessageBytesByType")
    val concurrency: Int = fields.number("concurrency")?.toInt()?.takeIf { it > 0 } ?: Int.MAX_VALUE

    /** Returns the most bytes of a message of a type; null: unknown. */
    fun maxBytes(type: String): Long? = (maxBytesByType?.number(type) ?: maxMessageBytes)?.toLong()?.takeIf { it > 0 }
}
