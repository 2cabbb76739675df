package penstock.client

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.serialization.json.JsonElement
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.Semaphore
import java.util.concurrent.atomic.AtomicInteger
import java.util.logging.Level
import java.util.logging.Logger
import kotlin.coroutines.EmptyCoroutineContext

/** Messages of a connection that the application has not handled. With more, the socket is not read. */
internal const val MAX_UNREAD = 1_000

/** Seconds for a server that does not answer the close frame. */
internal const val CLOSE_TIMEOUT = 2.0

private val log = Logger.getLogger("penstock.client")

/** The functions of the application. Any thread may call the methods; the functions run on one dispatcher, in order. */
internal class Listeners(private val dispatcher: CoroutineDispatcher) {
    private val messages = ConcurrentHashMap<String, CopyOnWriteArrayList<(Message) -> Unit>>()
    private val losses = CopyOnWriteArrayList<(Loss) -> Unit>()
    private val states = CopyOnWriteArrayList<(State, StateInfo) -> Unit>()
    private val errors = CopyOnWriteArrayList<(Throwable) -> Unit>()
    private val running = AtomicInteger() // functions that were dispatched and have not ended

    /** By the type of a call of the server. */
    val servers = ConcurrentHashMap<String, suspend (JsonElement?) -> JsonElement?>()

    fun onMessage(type: String, listener: (Message) -> Unit) = add(messages.getOrPut(type) { CopyOnWriteArrayList() }, listener)

    fun onLoss(listener: (Loss) -> Unit) = add(losses, listener)

    fun onState(listener: (State, StateInfo) -> Unit) = add(states, listener)

    fun onError(listener: (Throwable) -> Unit) = add(errors, listener)

    private fun <T> add(to: MutableCollection<T>, listener: T): AutoCloseable {
        to.add(listener)
        return AutoCloseable { to.remove(listener) }
    }

    fun deliver(event: TopicEvent) {
        if (event is Message) messages[event.type]?.forEach { call { it(event) } }
        if (event is Loss) losses.forEach { call { it(event) } }
    }

    fun stateChanged(state: State, info: StateInfo) = states.forEach { call { it(state, info) } }

    /** Calls a function of the application, and reports what it throws. */
    fun call(function: () -> Unit) = dispatch {
        try {
            function()
        } catch (error: Exception) {
            report(error)
        }
    }

    private fun dispatch(function: () -> Unit) {
        running.incrementAndGet()
        dispatcher.dispatch(EmptyCoroutineContext) {
            try {
                function()
            } finally {
                running.decrementAndGet()
            }
        }
    }

    /** Calls a function when those of the application that were called before have returned. */
    fun afterwards(function: () -> Unit) = if (running.get() == 0) function() else dispatch(function)

    /** Reports an error that belongs to no operation. Without a listener, it is logged. */
    fun report(error: Throwable) {
        if (errors.isEmpty()) log.log(Level.WARNING, "penstock: ${error.message}", error)
        for (listener in errors) {
            dispatch {
                try {
                    listener(error)
                } catch (failure: Exception) {
                    log.log(Level.WARNING, "a listener for errors has failed", failure)
                }
            }
        }
    }
}

/** Who receives the events of a subscription. */
internal class Receiver(val deliver: (TopicEvent) -> Unit, val ended: (PenstockException) -> Unit) {
    /** Completes when the server has accepted the subscription, or rejected it for good. */
    val ready = CompletableDeferred<Unit>()
}

/** Bounds the messages of a socket that wait. The thread that reads the socket waits. */
internal class Unread(most: Int) {
    private val free = Semaphore(most)

    @Volatile
    private var ended = false

    /** Adds a message, when there is room. It returns false if the socket has ended. */
    fun add(): Boolean {
        free.acquireUninterruptibly()
        return !ended
    }

    fun remove() = free.release()

    fun end() {
        ended = true
        free.release(1_000_000) // nothing waits any more
    }
}
