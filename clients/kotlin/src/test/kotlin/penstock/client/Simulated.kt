package penstock.client

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.jsonObject

/** A core with a clock and a server that tests control. Nothing does input or output. */
internal class Simulated(queue: Queue = Queue(), resume: Boolean = false, pacing: Boolean = false) {
    var time = 1_000.0
    val core = Core(pacing, resume, queue, now = { time }, random = { 0.5 })
    val links = ArrayList<Link>()
    val dials = ArrayList<Double>()
    val sent = ArrayList<JsonObject>()
    val done = ArrayList<Action>()
    val settled = ArrayList<Pair<PenstockException?, JsonElement?>>()
    val link get() = links.last()
    val errors get() = settled.mapNotNull { it.first }

    fun run() {
        while (true) {
            val actions = core.takeActions()
            if (actions.isEmpty()) return
            for (action in actions) {
                done.add(action)
                if (action is Action.Write) sent.add(json(action.text))
                if (action is Action.Dial) {
                    links.add(action.link)
                    dials.add(time)
                }
            }
        }
    }

    /** Lets time pass. */
    fun wait(seconds: Double) {
        val end = time + seconds
        while (true) {
            val next = core.nextTimer()
            if (next == null || next > end) break
            time = maxOf(time, next)
            core.runTimers()
            run()
        }
        time = end
    }

    /** Lets time pass without timers, as while a device sleeps. */
    fun sleep(seconds: Double) {
        time += seconds
        core.runTimers()
        run()
    }

    /** Opens the connection that the client has asked for. */
    fun open(welcome: String = "{}") {
        core.connection.start()
        run()
        core.connected(link)
        run()
        answer(of("\$ws:hello").last(), "\$ws:welcome", JsonObject(json(WELCOME) + json(welcome)).toString())
    }

    fun receive(type: String, payload: String?, meta: Map<String, JsonElement> = emptyMap()) {
        core.received(link, encodeFrame(type, JsonObject(meta + ("timestamp" to JsonPrimitive(1))), payload.orEmpty()))
        run()
    }

    fun answer(message: JsonObject, type: String, payload: String? = null) {
        receive(type, payload, mapOf("correlationId" to JsonPrimitive(message.meta().text("correlationId"))))
    }

    /** Receives a publication on the topic "room". */
    fun publish(offset: Long) {
        receive("SAID", """{"n":$offset}""", mapOf("topic" to JsonPrimitive("room"), "offset" to JsonPrimitive(offset)))
    }

    fun cut() {
        core.closed(link, 1006, "")
        run()
    }

    fun submit(type: String, oneWay: Boolean = false, idempotent: Boolean = false, first: Boolean = false): Entry {
        val done: Done = { error, reply, _ -> settled.add(error to reply) }
        val entry = core.submit(type, json("""{"n":1}"""), Send(oneWay = oneWay, idempotent = idempotent, first = first, done = done))
        run()
        return entry
    }

    fun subscribe(options: SubscribeOptions = SubscribeOptions()): Sub {
        val sub = Sub("room", options)
        core.subscribe(sub)
        run()
        return sub
    }

    /** Answers the last request for the topic "room". */
    fun accept(answer: String) = answer(of("\$ws:subscribe").last(), "\$ws:subscribed", answer)

    /** Returns the messages of a type that the client has sent. */
    fun of(type: String): List<JsonObject> = sent.filter { it.text("type") == type }

    /** Returns what the client has delivered to a subscription: offsets, and the names of other events. */
    fun delivered(sub: Sub): List<Any> = done.filterIsInstance<Action.Deliver>().filter { it.sub === sub }.map { action ->
        (action.event as? Message)?.payload?.jsonObject?.long("n") ?: action.event.javaClass.simpleName
    }

    fun reports(): List<Throwable> = done.filterIsInstance<Action.Report>().map { it.error }
}

internal fun json(text: String): JsonObject = Json.parseToJsonElement(text).jsonObject

internal fun JsonObject.meta(): JsonObject = obj("meta") ?: buildJsonObject { }

internal fun JsonObject.payload(): JsonObject = obj("payload") ?: buildJsonObject { }

internal const val WELCOME =
    """{"connId":"C1","pingIntervalMs":25000,"pongTimeoutMs":10000,"maxMessageBytes":65536,"callTimeoutMs":30000,"concurrency":64}"""
