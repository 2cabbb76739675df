package penstock.client

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlin.math.max

private const val CONNECT_TIMEOUT = 10.0
private const val WAKE_INTERVAL = 1.0 // between attempts that wake begins
private const val TOO_BIG = 1009 // a message of the client
private const val LOST = 1006

/** The connection of a client, the attempts to open another one, and the greeting. */
internal class Connection(
    private val env: Env,
    private val pacer: Pacer?,
    private val outbox: Outbox,
    private val topics: Topics,
    private val served: Served,
    private val resume: Boolean,
    private val stopOn: (Int) -> Boolean,
) {
    var state = State.IDLE
        private set
    val silence = Silence(env, outbox) { link ->
        drop(link)
        ended(LOST, PenstockException("UNAVAILABLE", "the server does not answer heartbeats"))
    }
    private val links = LinkedHashSet<Link>()
    private var current: Link? = null // carries messages
    private var opening: Link? = null // until it is open
    private var attempts = 0
    private var openedAt = 0.0
    private var lostAt = 0.0
    private var dialedAt = 0.0
    private var retryFrom = 0.0 // the server permits no attempt before
    private var failedWith = 0 // the close code after which the client stops at the second time
    private var session: JsonObject? = null
    private var deadline: Timer? = null // of the attempt
    private var retryTimer: Timer? = null

    val about: ConnectionInfo? get() = current?.about

    fun isCurrent(link: Link): Boolean = link === current

    /** Reports whether the events of a link count. */
    fun has(link: Link): Boolean = link in links

    private fun setState(state: State, info: StateInfo = StateInfo()) {
        this.state = state
        env.act(Action.StateChanged(state, info))
    }

    // Attempts

    /** Connects. again: also after close. */
    fun start(again: Boolean = false) {
        if (state == State.IDLE || (again && state == State.CLOSED)) dial()
    }

    private fun dial() {
        retryTimer?.cancel()
        endAttempt()
        val link = Link(expired = failedWith == UNAUTHENTICATED)
        opening = link
        links.add(link)
        dialedAt = env.now()
        deadline = env.after(CONNECT_TIMEOUT) { failed(link, IllegalStateException("the connection was not open after 10 s")) }
        if (current == null) setState(State.CONNECTING)
        env.act(Action.Dial(link))
    }

    private fun endAttempt() {
        deadline?.cancel()
        opening?.let { drop(it) }
    }

    /** The attempt has failed before there was a connection, or the connection has ended without a close frame. */
    fun failed(link: Link, cause: Throwable) {
        if (link === opening) endAttempt() else drop(link)
        if (!link.retired) ended(LOST, causedBy("UNAVAILABLE", cause))
    }

    /** The next attempt would fail like this one. */
    fun unusable(link: Link, cause: Throwable) {
        if (link === opening) stop(StateInfo(causedBy("FAILED_PRECONDITION", cause)))
    }

    /** Greets, and continues the session if there is one. The connection is open after the answer. */
    fun connected(link: Link) {
        silence.heard()
        greet(link)
    }

    private fun greet(link: Link) {
        val token = session?.text("token")
        val within = (session?.number("resumeWithinMs") ?: 0.0) / 1000
        val resumes = token != null && (current != null || env.now() - lostAt < within)
        pacer?.restart()
        val hello = buildJsonObject {
            put("version", 1)
            if (resume && !resumes) put("session", true)
        }
        ask(link, "\$ws:hello", hello) { error, welcome, _ ->
            if (link === opening) {
                if (error == null) welcome(link, welcome as? JsonObject ?: JsonObject(emptyMap()), resumes)
                if (!resumes) opened(link, null)
            }
        }
        if (!resumes) return
        val old = current ?: return resumeSession(link, token!!)
        // The server rejects what arrives on the old link after the session has left it. This answer shows that all has arrived.
        use(null)
        ask(old, "\$ws:hello", buildJsonObject { put("version", 1) }) { _, _, _ -> if (link === opening) resumeSession(link, token!!) }
    }

    private fun ask(on: Link, type: String, payload: JsonObject, done: Done) {
        outbox.submit(type, payload, Send(first = true, done = done), on)
    }

    private fun welcome(link: Link, welcome: JsonObject, resumes: Boolean) {
        pacer?.announce(welcome.objects("limits"))
        env.welcome = Welcome(welcome)
        silence.bounds((welcome.number("pingIntervalMs") ?: 25_000.0) / 1000, (welcome.number("pongTimeoutMs") ?: 10_000.0) / 1000)
        val id = welcome.text("connId").orEmpty()
        link.about = ConnectionInfo(id, id, false, welcome.text("contractHash").orEmpty())
        if (!resumes) session = welcome.obj("session")
    }

    private fun resumeSession(link: Link, token: String) {
        var room = (env.welcome.maxBytes("\$ws:resume") ?: 65_536) / 2
        // The others are subscribed to afterwards.
        val shown = topics.resumable().filter { topic ->
            room -= utf8Size(topic.toString())
            room > 0
        }
        val payload = buildJsonObject {
            put("token", token)
            put("topics", JsonArray(shown))
        }
        ask(link, "\$ws:resume", payload) { error, answer, id ->
            if (link === opening) resumed(link, error, answer as? JsonObject ?: JsonObject(emptyMap()), id)
        }
    }

    private fun resumed(link: Link, error: PenstockException?, answer: JsonObject, id: String) {
        if (error == null) {
            session = answer.obj("session")
            link.about = link.about.copy(memberId = answer.text("memberId").orEmpty())
            outbox.tell(link, "\$ws:ack", mapOf("correlationId" to JsonPrimitive(id)))
            opened(link, answer.objects("topics"))
        } else if (error.retryable) {
            endAttempt()
            ended(1013, error)
        } else {
            session = null
            greet(link)
        }
    }

    private fun opened(link: Link, results: List<JsonObject>?) {
        val old = current
        use(null)
        current = link
        opening = null
        deadline?.cancel()
        link.about = link.about.copy(resumed = results != null)
        openedAt = env.now()
        silence.watch(link)
        topics.opened(results.orEmpty())
        outbox.use(link)
        if (old != null) {
            old.retired = true
            dropRetired(old)
        }
        setState(State.OPEN, StateInfo(resumed = results != null))
    }

    // Ends

    /** Detaches a link, whose calls are lost, and closes it. */
    private fun drop(link: Link, code: Int? = null, tooBig: Boolean = false) {
        links.remove(link)
        if (link === opening) {
            opening = null
            current?.let(::use) // which the session has not left
        }
        if (link === current) {
            current = null
            silence.stop()
            lostAt = env.now()
            endBackoff()
            use(null)
        }
        outbox.lost(link, tooBig)
        link.serving.values.toList().forEach(served::cancel)
        env.act(Action.Close(link, code))
    }

    /** Without a link that carries messages, they wait. */
    private fun use(link: Link?) {
        topics.online(link != null)
        outbox.use(link)
    }

    /** A connection that was open for a while ends the backoff. */
    private fun endBackoff() {
        if (env.now() - openedAt < HEALTHY_AFTER) return
        attempts = 0
        failedWith = 0
    }

    /** The connection of a link has ended, or the server has refused it. */
    fun closed(link: Link, code: Int, reason: String) {
        if (link === opening) endAttempt() else drop(link, null, code == TOO_BIG)
        if (!link.retired) ended(code, closeError(code, reason))
    }

    /** Closes a link that was replaced when its calls are answered. If they take long, the server closes it. */
    fun dropRetired(link: Link) {
        if (link.retired && link in links && outbox.isIdle(link)) drop(link, 1000)
    }

    /** The connection or an attempt has ended. */
    private fun ended(code: Int, error: PenstockException) {
        if (opening != null) return setState(State.CONNECTING) // the attempt to move to another server goes on
        val kind = if (code == UNAUTHENTICATED) {
            code
        } else if (code in VIOLATION) {
            1
        } else {
            0
        }
        val final = error.retryAfterMs == PenstockException.NEVER && code >= 4000 // the server accepts no later connection either
        if (code in STOP || final || (kind != 0 && kind == failedWith) || stopOn(code)) return stop(StateInfo(error, code))
        failedWith = kind
        val demanded = error.retryAfter?.takeIf { it.isFinite() } ?: 0.0
        val delay = demanded + backoffAfter(code, demanded, attempts, env.random)
        attempts++
        retryFrom = env.now() + demanded
        retry(delay)
        if (current == null) setState(State.WAITING, StateInfo(error, code, (delay * 1000).toLong()))
    }

    /**
     * Connects to another server, as this one asks, and uses the current link until then. A move counts as an attempt: a server that
     * asks for it on every connection would be followed without a pause.
     */
    fun move(seconds: Double) {
        endBackoff()
        val pause = if (attempts > 0) backoffAfter(LOST, 0.0, attempts, env.random) else 0.0
        attempts++
        retry(max(0.0, seconds) + pause)
    }

    private fun retry(seconds: Double) {
        retryTimer?.cancel()
        retryTimer = env.after(seconds, ::dial)
    }

    /** The network has changed, or the device was asleep: sockets may take minutes to notice. */
    fun wake() {
        if (current != null) {
            silence.wake()
        } else if (state == State.WAITING) {
            retry(max(retryFrom, dialedAt + WAKE_INTERVAL) - env.now())
        }
    }

    private fun stop(info: StateInfo, code: Int? = null) {
        deadline?.cancel()
        retryTimer?.cancel()
        state = State.CLOSED
        opening = null
        links.toList().forEach { drop(it, code) }
        session = null
        attempts = 0
        failedWith = 0
        topics.online(false, forget = true)
        outbox.endAll(info.error ?: clientClosed())
        env.timers.clear()
        setState(State.CLOSED, info)
    }

    /** The session ends, too. */
    fun close() {
        if (state != State.CLOSED) stop(StateInfo(clientClosed()), 1000)
    }
}

internal fun clientClosed() = PenstockException("CANCELLED", "the client is closed")
