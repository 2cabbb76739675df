package penstock.client

import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.JsonElement
import kotlin.coroutines.Continuation
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.math.ceil
import kotlin.math.max
import kotlin.random.Random

/** The time. For tests, it may run faster. */
internal class Clock(val scale: Double = 1.0) {
    fun now(): Double = System.nanoTime() / 1e9 * scale

    /** Returns how long a wait takes. */
    fun millis(seconds: Double): Long = ceil(max(0.0, seconds) / scale * 1000).toLong()
}

/**
 * The side of a client with coroutines: it executes what the core asks for, and calls the functions of the application.
 *
 * The core and all fields here, except those that say otherwise, belong to the dispatcher [serial], which runs one thing at a time:
 * every event, whatever thread it comes from, is a function that [post] adds to it. Functions of the application never run there.
 */
internal class Runtime(private val options: Options, private val url: suspend () -> String) {
    val clock = options.clock
    val core = Core(
        pacing = options.pacing,
        resume = options.resume,
        queue = options.queue,
        stopOn = options.stopOn,
        now = clock::now,
        random = Random.Default::nextDouble,
    )

    /** The functions of the application, which any thread may change. */
    val listeners = Listeners(options.callbacks)

    /** Any thread may read it. */
    val state = MutableStateFlow(State.IDLE)

    /** Any thread may read it. */
    @Volatile
    var about: ConnectionInfo? = null
        private set
    private val serial: CoroutineDispatcher = Dispatchers.Default.limitedParallelism(1)
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private val transport = options.transport ?: OkHttpTransport(options.http, options.headers)
    private val attempts = HashMap<Link, Attempt>()
    private val serving = HashMap<ServerCall, Job>()
    private val receivers = LinkedHashMap<Sub, Receiver>()
    private val connecting = LinkedHashSet<Continuation<Unit>>()
    private var authenticating: Deferred<Unit>? = null
    private var timer: Job? = null
    private var armed = Double.POSITIVE_INFINITY // when the timer fires

    /** Adds an event. Events of one thread are executed in order. Any thread may call it. */
    fun post(event: () -> Unit) {
        serial.dispatch(EmptyCoroutineContext) {
            try {
                event()
                execute()
            } catch (error: Exception) {
                listeners.report(error)
            }
        }
    }

    /** Returns what belongs to the core. */
    suspend fun <T> read(function: () -> T): T = withContext(serial) { function() }

    // Events of the application. Any thread may call them.

    suspend fun connect(): Unit = suspendCancellableCoroutine { waiter ->
        post {
            if (core.connection.state == State.OPEN) {
                waiter.resume(Unit)
            } else {
                connecting.add(waiter)
                core.connection.start(again = true)
            }
        }
        waiter.invokeOnCancellation { post { connecting.remove(waiter) } }
    }

    suspend fun close() {
        val closing = read {
            val sockets = attempts.values.map { it.ended }
            core.connection.close()
            execute()
            sockets
        }
        closing.joinAll() // each is bounded
    }

    /** Sends a message, and returns the payload of its reply. A caller that is canceled cancels the message. */
    suspend fun request(type: String, payload: JsonElement?, send: Send): JsonElement? = suspendCancellableCoroutine { waiter ->
        val done: Done = { error, reply, _ -> if (error != null) waiter.resumeWithException(error) else waiter.resume(reply) }
        post {
            if (!waiter.isActive) return@post
            try {
                val entry = core.submit(type, payload, send.with(done))
                waiter.invokeOnCancellation { post { core.outbox.cancel(entry) } }
            } catch (error: PenstockException) {
                waiter.resumeWithException(error)
            }
        }
    }

    fun subscribe(sub: Sub, receiver: Receiver) = post {
        receivers[sub] = receiver
        try {
            core.subscribe(sub)
        } catch (error: PenstockException) {
            ended(sub, error)
        }
    }

    fun unsubscribe(sub: Sub) = post {
        val receiver = receivers.remove(sub)
        if (receiver != null) {
            core.topics.unsubscribe(sub)
            receiver.ready.completeExceptionally(PenstockException("CANCELLED", "the subscription has ended"))
        }
    }

    /** Refreshes the identity of the connection with a new token. Concurrent calls are one. */
    suspend fun authenticate() {
        val running = read {
            authenticating?.takeIf { it.isActive }
                ?: scope.async { authenticateWith(options.token, clock, ::request, options.timeoutMs) }.also { authenticating = it }
        }
        running.await()
    }

    // Actions

    private fun execute() {
        while (true) {
            val actions = core.takeActions()
            if (actions.isEmpty()) break
            actions.forEach(::perform)
        }
        val next = core.nextTimer()
        if (next != null && next < armed) arm(next)
    }

    private fun arm(at: Double) {
        timer?.cancel()
        armed = at
        timer = scope.launch {
            delay(clock.millis(at - clock.now()))
            post {
                if (armed == at) armed = Double.POSITIVE_INFINITY
                core.runTimers()
            }
        }
    }

    private fun perform(action: Action) {
        when (action) {
            is Action.Dial -> attempts[action.link] = Attempt(action.link).also { it.open() }
            is Action.Write -> attempts[action.link]?.socket?.write(action.text)
            is Action.Close -> attempts[action.link]?.close(action.code)
            is Action.Serve -> serve(action.call)
            is Action.CancelServe -> serving[action.call]?.cancel()
            is Action.Refresh -> refresh()
            is Action.Deliver -> if (action.sub == null) listeners.deliver(action.event) else receivers[action.sub]?.deliver(action.event)
            is Action.Subscribed -> receivers[action.sub]?.ready?.complete(Unit)
            is Action.Ended -> ended(action.sub, action.error)
            is Action.Report -> listeners.report(action.error)
            is Action.StateChanged -> stateChanged(action.state, action.info)
        }
    }

    private fun serve(call: ServerCall) {
        var reply: JsonElement? = null
        val handler = listeners.servers.getValue(call.type)
        val job = scope.async { reply = handler(call.payload) }
        serving[call] = job
        job.invokeOnCompletion { error ->
            // also if it was canceled before it began
            post {
                serving.remove(call)
                core.finished(call, reply, error)
            }
        }
    }

    private fun refresh() {
        val job = scope.async { authenticate() }
        job.invokeOnCompletion { error -> if (error is Exception) listeners.report(error) }
    }

    private fun ended(sub: Sub, error: PenstockException) {
        val receiver = receivers.remove(sub) ?: return
        receiver.ready.completeExceptionally(error)
        receiver.ended(error)
    }

    private fun stateChanged(to: State, info: StateInfo) {
        about = core.connection.about
        state.value = to
        val error = info.error ?: clientClosed()
        if (to == State.OPEN || to == State.CLOSED) {
            connecting.forEach { if (to == State.OPEN) it.resume(Unit) else it.resumeWithException(error) }
            connecting.clear()
        }
        if (to == State.CLOSED) {
            for (sub in receivers.keys.toList()) {
                core.topics.unsubscribe(sub)
                ended(sub, error)
            }
        }
        listeners.stateChanged(to, info)
    }

    // Sockets

    /** The socket of a link, from the request for a token to its end. */
    private inner class Attempt(private val link: Link) : SocketListener {
        val ended = Job()
        var socket: Socket? = null
        private var opening: Job? = null
        private val unread = Unread(MAX_UNREAD)

        fun open() {
            opening = scope.launch {
                try {
                    val token = options.token?.invoke(link.expired)
                    val target = url()
                    post { connect(target, token) }
                } catch (error: Exception) {
                    post { core.failed(link, error) } // without an effect if the attempt was given up
                }
            }
        }

        private fun connect(target: String, token: String?) {
            if (ended.isCompleted) return
            try {
                socket = transport.connect(target, token, this).also { link.buffered = it::buffered }
            } catch (error: IllegalArgumentException) {
                core.failed(link, error, final = true)
            }
        }

        fun close(code: Int?) {
            opening?.cancel()
            val open = socket
            if (open == null || code == null) return end()
            open.close(code)
            scope.launch {
                delay(clock.millis(CLOSE_TIMEOUT))
                post { end() }
            }
        }

        private fun end() {
            if (!ended.complete()) return
            socket?.abort()
            unread.end()
            attempts.remove(link)
        }

        override fun opened() = post { core.connected(link) }

        override fun received(text: String) {
            if (!unread.add()) return
            post {
                try {
                    core.received(link, text)
                    execute()
                } finally {
                    listeners.afterwards(unread::remove)
                }
            }
        }

        override fun closed(code: Int, reason: String) = post {
            core.closed(link, code, reason)
            finish()
        }

        override fun failed(cause: Throwable) = post {
            core.failed(link, cause)
            finish()
        }

        /** The socket has ended by itself. */
        private fun finish() {
            socket = null
            end()
        }
    }
}
