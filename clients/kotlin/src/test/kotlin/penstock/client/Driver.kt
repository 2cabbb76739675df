package penstock.client

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put

// Operates the client for `penstock conformance`: reads commands from standard input and writes events to standard output, one line
// of JSON each. docs/writing-a-client.md describes both.

@Synchronized
private fun report(name: String, vararg more: Pair<String, Any?>) {
    val members = more.associate { (key, value) -> key to primitive(value) }
    println(JsonObject(mapOf("name" to JsonPrimitive(name)) + members))
}

private fun primitive(value: Any?): JsonElement = when (value) {
    is JsonElement -> value
    is Boolean -> JsonPrimitive(value)
    is Number -> JsonPrimitive(value)
    else -> JsonPrimitive(value.toString())
}

private fun failure(error: Throwable): Array<Pair<String, Any?>> = when (error) {
    is CancellationException -> arrayOf("code" to "CANCELLED")
    is PenstockException -> {
        val ms = error.retryAfterMs?.takeIf { it != PenstockException.NEVER } ?: 0
        val detail = error.details.text("reason").orEmpty()
        arrayOf("code" to error.code, "unknown" to error.outcomeUnknown, "retryAfterMs" to ms, "detail" to detail)
    }

    else -> arrayOf("code" to "INTERNAL", "detail" to error.toString())
}

private fun JsonElement?.n(): Long = (this as? JsonObject)?.long("n") ?: 0

private fun numbered(command: JsonObject, pad: Int = 0) = buildJsonObject {
    put("n", command.long("n"))
    if (pad > 0) put("pad", "x".repeat(pad))
}

/** A stream that gives one item for each request. */
private class Pull(val requests: Channel<Unit>, var job: Job) {
    var left = false
}

/** The state of a scenario. */
private class Driver(scale: Double) {
    private val clock = Clock(scale)
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private lateinit var client: Client
    private val jobs = HashMap<String, Job>()
    private val streams = HashMap<String, Pull>()
    private val subscriptions = HashMap<String, Subscription>()

    /** Starts an operation, and reports its end. */
    private fun start(id: String, work: suspend () -> JsonElement?) {
        // Undispatched, so that operations begin in the order of the commands.
        jobs[id] = scope.launch(start = CoroutineStart.UNDISPATCHED) {
            try {
                report("settled", "id" to id, "n" to work().n())
            } catch (error: Exception) {
                report("settled", "id" to id, *failure(error))
            }
        }
    }

    private fun create(o: JsonObject) {
        val tokens = Json.decodeFromString<List<String>>((o["tokens"] ?: "[]").toString()).toMutableList()
        client = Client(o.text("url")!!) {
            clock = this@Driver.clock
            timeoutMs = o.number("timeoutMs")?.toLong() ?: 30_000
            val overflow = if (o.flag("oldest")) Overflow.DROP_OLDEST else Overflow.DROP_NEWEST
            queue = Queue(o.number("messages")?.toInt() ?: 1_000, overflow = overflow, maxWaitMs = o.number("expireMs")?.toLong() ?: 30_000)
            resume = o.flag("session")
            pacing = o.flag("pacing")
            if (tokens.isNotEmpty()) {
                token = { expired ->
                    report("token", "expired" to expired)
                    when (val value = if (tokens.size > 1) tokens.removeAt(0) else tokens[0]) {
                        "!hang" -> awaitCancellation()
                        "!fail" -> error("no token")
                        else -> value
                    }
                }
            }
        }
        client.onState { state, _ -> report("state", "state" to state.name.lowercase()) }
        client.onError { error -> report("error", *failure(error)) }
        client.on("SAID", ::said)
        client.onLoss { report("loss", "topic" to it.topic, "from" to it.first, "to" to it.last, "ended" to (it.ended != null)) }
        client.handle("CONFIRM", "CONFIRMED", ::confirm)
    }

    private fun said(m: Message) {
        val offset = m.position?.offset ?: 0
        report("message", "n" to m.payload.n(), "topic" to m.topic.orEmpty(), "offset" to offset, "fromState" to m.state)
        if ((m.payload as? JsonObject)?.flag("throw") == true) error("the handler fails")
    }

    private suspend fun confirm(request: JsonElement?): JsonElement {
        val n = request.n()
        report("served", "n" to n)
        when ((request as JsonObject).text("do")) {
            "wait" -> try {
                awaitCancellation()
            } finally {
                report("served-ended", "n" to n)
            }

            "slow" -> withContext(NonCancellable) { delay(clock.millis(5.0)) } // and does not look at its cancellation
            "fail" -> throw PenstockException("PERMISSION_DENIED", "the user said no")
            "throw" -> error("secret")
        }
        return buildJsonObject { put("n", n) }
    }

    private fun pull(id: String, payload: JsonObject): Pull {
        val pull = Pull(Channel(Channel.UNLIMITED), Job())
        pull.job = scope.launch {
            val outcome = try {
                pull.requests.receive()
                client.stream("EXPORT", payload).collect { item ->
                    report("item", "id" to id, "n" to item.n())
                    pull.requests.receive()
                }
                emptyArray()
            } catch (error: Exception) {
                if (pull.left) emptyArray() else failure(error)
            }
            report("settled", "id" to id, *outcome)
        }
        return pull
    }

    private fun subscribe(id: String, topic: String, o: JsonObject) {
        val since = o.text("epoch")?.let { Position(it, o.long("offset")) }
        val options = SubscribeOptions(since, o.flag("state"), o.flag("presence"), o.long("last").toInt(), o.flag("hidden"))
        val onEnd = { error: PenstockException -> if (jobs.getValue(id).isCompleted) report("ended", "topic" to topic, *failure(error)) }
        val subscription = client.subscribe(topic, options, onEnd) { event ->
            if (event is Members) report("presence", "topic" to topic, "n" to event.members.size)
        }
        subscriptions[id] = subscription
        start(id) { subscription.ready().let { null } }
    }

    private fun position(id: String) = scope.launch {
        val at = subscriptions.getValue(id).position()
        report("position", "id" to id, "epoch" to at?.epoch.orEmpty(), "offset" to (at?.offset ?: 0))
    }

    fun execute(c: JsonObject) {
        val id = c.text("id").orEmpty()
        val o = c.obj("opts") ?: JsonObject(emptyMap())
        when (c.text("do")) {
            "create" -> create(o)
            "connect" -> start(id) { client.connect().let { null } }
            "call" -> start(id) { client.call("ASK", numbered(c), o.number("timeoutMs")?.toLong()) }
            "send" -> start(id) { client.send("SAY", numbered(c, o.long("pad").toInt())).let { null } }
            "abort" -> (jobs[id] ?: streams.getValue(id).job).cancel()
            "stream" -> streams[id] = pull(id, numbered(c))
            "next" -> streams.getValue(id).requests.trySend(Unit)
            "break" -> streams.getValue(id).run {
                left = true
                job.cancel()
            }

            "consume" -> start(id) {
                client.stream("EXPORT", numbered(c)).collect { report("item", "id" to id, "n" to it.n()) }.let { null }
            }
            "subscribe" -> subscribe(id, c.text("topic")!!, o)
            "unsubscribe" -> subscriptions.getValue(id).close()
            "position" -> position(id)
            "allowed" -> scope.launch { report("allowed", "id" to id, "ms" to client.nextAllowedInMs(id)) }
            "close" -> start(id) { client.close().let { null } }
        }
    }
}

fun main(arguments: Array<String>) {
    warmUp()
    val scale = arguments.firstOrNull()?.toInt() ?: 5
    report("driver", "protocol" to 1, "client" to "Kotlin", "scale" to scale, "formats" to Json.parseToJsonElement("""["json"]"""))
    val driver = Driver(scale.toDouble())
    generateSequence(::readLine).forEach { driver.execute(Json.parseToJsonElement(it) as JsonObject) }
}
