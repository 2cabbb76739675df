package penstock.client

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlin.math.max

private const val RETRY = 1.0

/** One topic. What is wanted is the truth: requests follow from it, one at a time. */
internal class Topic(private val topics: Topics, private val name: String) {
    private val env = topics.env
    private val subs = ArrayList<Sub>()
    private val listeners = Sub(name) // of the client, for all topics
    private var position: Position? = null // up to where publications were handled
    private var subscribed = false // as far as the server has answered
    private var stale = false // the subscription must be made again, for its state or its presence
    private var anew = false // without the position, so that the server sends the state
    private var busy = false // a request has no answer
    private var hidden = false // in the last request
    private var byServer = false // a handler of the server has subscribed
    private var stateLeft = 0.0 // publications of the state that follow; infinite until $ws:state
    private val members = LinkedHashMap<String, Member>()

    // What is wanted

    private val wantsState get() = subs.any { it.options.state }
    private val wantsPresence get() = subs.any { it.options.presence }
    private val wantsHidden get() = subs.isNotEmpty() && subs.all { it.options.hidden }

    /** Returns the position. A state that is not complete, or is asked for anew, has none. */
    private fun known(): Position? = if ((anew && wantsState) || stateLeft > 0) null else position

    fun positionOf(sub: Sub): Position? {
        val at = known() ?: return null
        sub.since?.let { since -> return since.takeIf { it.epoch.isNotEmpty() } }
        return Position(at.epoch, max(at.offset, sub.handled))
    }

    private fun moveTo(to: Position?, late: Sub? = null) {
        val at = position
        val same = to?.epoch == at?.epoch
        for (sub in subs + listeners) sub.handled = if (same && sub !== late) max(sub.handled, at?.offset ?: 0) else 0
        position = to
    }

    /** Returns the subscription that begins at another position than the others, if there is one. */
    private fun late(): Sub? {
        val at = known()
        for (sub in subs) {
            val since = sub.since ?: continue
            if (at == null && since.epoch.isNotEmpty()) continue
            if (at == null || since.epoch != at.epoch || since.offset < at.offset) return sub
            sub.handled = since.offset
            sub.since = null
        }
        return null
    }

    /** Returns the request that subscribes, from a position or that of the topic. */
    fun request(from: Position? = null): JsonObject {
        val at = from ?: known()
        hidden = wantsHidden
        return buildJsonObject {
            put("topic", name)
            put("positions", true)
            if (at != null && at.epoch.isNotEmpty()) {
                put("epoch", at.epoch)
                put("offset", at.offset)
            }
            val last = subs.maxOfOrNull { it.options.last } ?: 0
            if (last > 0) put("last", last)
            if (wantsState) put("state", true)
            if (wantsPresence) put("presence", true)
            if (hidden) put("hidden", true)
        }
    }

    /** Sends the request that makes the server's subscription what is wanted. */
    fun sync() {
        val wanted = subs.isNotEmpty()
        if (!wanted && !subscribed && !busy) topics.forget(name)
        val late = late()
        if (!topics.mayRequest() || busy) return
        if (wanted) {
            if (subscribed && wantsHidden == hidden && !stale && late == null) return
            subscribe(late)
        } else if (subscribed && !byServer) {
            ask("\$ws:unsubscribe", buildJsonObject { put("topic", name) }) { subscribed = false }
        }
    }

    private fun subscribe(late: Sub?) {
        val presented = if (late != null) late.since else known()
        val payload = request(presented)
        stale = false
        ask("\$ws:subscribe", payload) { answer ->
            accepted(answer, presented, late)
            if ("presence" in payload && "members" !in answer) {
                report("topic \"$name\" has no presence; its members are not delivered")
            }
        }
    }

    private fun ask(type: String, payload: JsonObject, accepted: (JsonObject) -> Unit) {
        val connection = topics.connections
        busy = true
        topics.requests++
        val done: Done = { error, answer, _ ->
            if (connection == topics.connections) { // otherwise, it is asked again on the next connection
                busy = false
                topics.requests--
                if (error == null) {
                    accepted(answer as? JsonObject ?: JsonObject(emptyMap()))
                } else if (topics.open) {
                    failed(error)
                }
                topics.sync()
            }
        }
        topics.outbox.submit(type, payload, Send(first = true, done = done))
    }

    // Answers

    private fun accepted(answer: JsonObject, presented: Position? = null, late: Sub? = null) {
        subscribed = true
        anew = anew && stale // asked for after the request
        val at = answer.position()
        val recovered = answer.flag("recovered")
        val state = answer.number("state")?.toLong()
        val ended = answer.obj("ended")?.position()
        val missed = state == null && presented != null && at != null && (ended != null || !recovered)
        val loss = Loss(name, ended = if (recovered) ended else null)
        if (late != null) {
            late.since = null
            if (at == null) report("topic \"$name\" has no history; last has no effect")
            if (missed) deliver(listOf(late), loss)
            val before = position
            val continues = at != null && before != null && at.epoch == before.epoch && at.offset <= before.offset
            if (before != null && state == null && !continues) {
                stale = true // the others go on
                return
            }
        }
        val further = recovered && presented != null && at != null && presented.epoch == at.epoch && presented.offset > at.offset
        // Messages that have arrived between the request and the answer come again.
        moveTo(if (further) presented else at, late)
        stateLeft = if (answer.flag("more")) Double.POSITIVE_INFINITY else (state ?: 0).toDouble()
        if (state != null) {
            deliver(subs.filter { it.options.state }, Reset(name, state))
        } else if (missed && late == null) {
            lose(loss)
        }
        if ("members" in answer) {
            members.clear()
            changePresence(emptyList(), answer.objects("members"))
        }
        subs.forEach { env.act(Action.Subscribed(it)) }
    }

    private fun report(text: String) = env.act(Action.Report(PenstockException("FAILED_PRECONDITION", text)))

    private fun failed(error: PenstockException) {
        if (!error.retryable) return end(error)
        stale = true
        topics.pause((error.retryAfter?.takeIf { it > 0 } ?: RETRY) + backoff(0, env.random()))
    }

    /** Ends all subscriptions. */
    private fun end(error: PenstockException) {
        val ended = subs.toList()
        subs.clear()
        for (sub in ended) {
            sub.ended = true
            env.act(Action.Ended(sub, error))
        }
        sync()
    }

    // Events

    private fun deliver(to: List<Sub>, event: TopicEvent) = to.forEach { env.act(Action.Deliver(it, event)) }

    private fun lose(loss: Loss) {
        deliver(subs, loss)
        env.act(Action.Deliver(null, loss))
        if (wantsState) refresh(forState = true)
    }

    /** Subscribes again. With a position, the server would send what is missing instead of the state. */
    private fun refresh(forState: Boolean = false) {
        anew = anew || forState
        stale = true
        sync()
    }

    private fun changePresence(left: List<JsonObject>, joined: List<JsonObject>) {
        left.forEach { members.remove(it.text("connId").orEmpty()) }
        for (m in joined) {
            val member =
                Member(m.text("connId").orEmpty(), m.text("tenantId").orEmpty(), m.text("userId").orEmpty(), m.text("info").orEmpty())
            members[member.connId] = member
        }
        deliver(subs.filter { it.options.presence }, Members(name, members.values.toList()))
    }

    fun add(sub: Sub) {
        val asked = subscribed || busy
        val ready = subscribed && !busy
        if (!asked && position == null && sub.options.since?.epoch?.isNotEmpty() == true) position = sub.since
        subs.add(sub)
        if (ready) env.act(Action.Subscribed(sub))
        if (asked && (sub.options.state || sub.options.presence)) refresh(sub.options.state)
        sync()
    }

    fun remove(sub: Sub) {
        if (subs.remove(sub)) sync()
    }

    /** A connection is open. result says how it continues. */
    fun opened(result: JsonObject?) {
        subscribed = false
        busy = false
        if (result != null) accepted(result, position) else byServer = false
    }

    /** A handler of the server has subscribed the connection. */
    fun subscribedByServer(notice: JsonObject) {
        byServer = true
        if (!subscribed) accepted(notice)
    }

    fun forgetPosition() = moveTo(null)

    fun receive(frame: Frame) {
        when (frame.type) {
            "\$ws:unsubscribed" -> unsubscribedByServer(frame.fields.obj("error"))
            "\$ws:presence" -> changePresence(frame.fields.objects("left"), frame.fields.objects("joined"))
            "\$ws:state" -> stateLeft = 0.0
            "\$ws:position" -> moved(frame.fields)
            else -> publication(frame)
        }
    }

    private fun unsubscribedByServer(error: JsonObject?) {
        byServer = false
        subscribed = false
        if (error == null) {
            end(PenstockException("CANCELLED", "the server has ended the subscription"))
        } else if (!busy) {
            failed(decodeError(error)) // the state is not complete
        }
        sync()
    }

    private fun moved(to: JsonObject) {
        moveTo(Position(to.text("epoch").orEmpty(), to.long("offset")))
        val lost = to.obj("lost")
        val ended = to.obj("ended")?.position()
        if (lost != null || ended != null || to.flag("reset")) lose(Loss(name, lost?.long("from") ?: 0, lost?.long("to") ?: 0, ended))
    }

    private fun publication(frame: Frame) {
        val at = position
        val offset = frame.meta.long("offset") // 0 if it is not in a history
        if (offset > 0 && busy) return // it follows the answer
        var state = false
        if (offset > 0 && at != null) {
            if (offset <= at.offset) {
                if (stateLeft == 0.0) return // known
                stateLeft--
                state = true
            } else if (offset > at.offset + 1) {
                return refresh() // the server sends again what is missing, and this publication
            }
        }
        val to = if (offset > 0 && at != null) Position(at.epoch, offset) else null
        val message = Message(frame.type, frame.payload, name, to, state, frame.timestamp)
        for (sub in listOf(listeners) + subs) {
            val wanted = offset == 0L || state || (sub.since == null && offset > sub.handled)
            if (wanted) env.act(Action.Deliver(if (sub === listeners) null else sub, message))
        }
        if (to != null && !state) position = to
    }
}
