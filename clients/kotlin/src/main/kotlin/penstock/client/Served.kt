package penstock.client

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonPrimitive
import java.util.concurrent.ConcurrentHashMap

private const val MAX_SERVED = 64 // at the same time

/** The calls of the server whose handlers run. */
internal class Served(private val env: Env, private val outbox: Outbox) {
    /** By the type of a call. Any thread may add one. */
    val replyTypes = ConcurrentHashMap<String, String>()

    /** Handles a call of the server, or its end. */
    fun receive(link: Link, frame: Frame) {
        if (frame.type == "\$ws:abort") {
            link.serving[frame.id]?.let(::cancel)
            return
        }
        val call = ServerCall(link, frame.id, frame.type, frame.payload)
        if (link.serving.size >= MAX_SERVED) {
            return fail(call, PenstockException("RESOURCE_EXHAUSTED", "too many calls", retryable = true))
        }
        if (!replyTypes.containsKey(call.type)) return fail(call, PenstockException("UNIMPLEMENTED", "no handler has this type"))
        link.serving[call.id] = call
        val timeout = frame.meta.number("timeoutMs") ?: 0.0
        if (timeout > 0) call.timer = env.after(timeout / 1000) { cancel(call) }
        env.act(Action.Serve(call))
    }

    /** The server does not wait any more. The call counts until its handler has ended. */
    fun cancel(call: ServerCall) {
        if (call.over) return
        call.over = true
        env.act(Action.CancelServe(call))
    }

    /** The handler of a call has ended. */
    fun finished(call: ServerCall, payload: JsonElement?, error: Throwable?) {
        if (call.link.serving[call.id] === call) call.link.serving.remove(call.id)
        call.timer?.cancel()
        if (call.over) return
        call.over = true
        when (error) {
            null -> reply(call, payload)
            is PenstockException -> fail(call, error)
            else -> unexpected(call, error)
        }
    }

    private fun reply(call: ServerCall, payload: JsonElement?) {
        val done: Done = { error, _, _ -> if (error != null) unexpected(call, error) } // it is too big
        outbox.submit(replyTypes.getValue(call.type), payload, answerTo(call, done), call.link)
    }

    private fun unexpected(call: ServerCall, error: Throwable) {
        env.act(Action.Report(error))
        // The text of the error may contain what the server must not see.
        fail(call, PenstockException("INTERNAL", "the handler has failed"))
    }

    private fun fail(call: ServerCall, error: PenstockException) {
        outbox.submit("RPC_ERROR", encodeError(error), answerTo(call), call.link)
    }

    private fun answerTo(call: ServerCall, done: Done? = null) =
        Send(oneWay = true, first = true, meta = mapOf("correlationId" to JsonPrimitive(call.id)), done = done)
}
