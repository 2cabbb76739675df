package penstock.client

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assertions.fail
import org.junit.jupiter.api.Test
import java.util.concurrent.CopyOnWriteArrayList

@Serializable
private data class Number(val n: Int)

/** The client with a network in memory. Its clock is ten times as fast. */
class NetworkTest {
    private val network = FakeNetwork()
    private val errors = CopyOnWriteArrayList<Throwable>()

    private fun test(configure: Options.() -> Unit = {}, body: suspend CoroutineScope.(Client) -> Unit) = runBlocking {
        val client = Client("ws://fake/") {
            transport = network
            clock = Clock(10.0)
            configure()
        }
        client.onError(errors::add)
        try {
            withTimeout(30_000) { body(client) }
        } finally {
            client.close()
        }
        assertEquals(State.CLOSED, client.state.value)
    }

    private suspend fun eventually(condition: () -> Boolean) {
        repeat(1_000) { if (condition()) return else delay(10) }
        fail<Unit>("it did not happen")
    }

    /** Completes when the client has lost its connection. The flow of states could skip that. */
    private fun lossOf(client: Client) = CompletableDeferred<Unit>().also { lost ->
        client.onState { state, _ -> if (state == State.WAITING) lost.complete(Unit) }
    }

    private suspend fun failureOf(work: suspend () -> Unit): PenstockException {
        try {
            work()
        } catch (error: PenstockException) {
            return error
        }
        return fail("it has not failed")
    }

    @Test
    fun `changed network is a lost connection, and nothing of a topic is missed`() = test { client ->
        val offsets = Channel<Long?>(Channel.UNLIMITED)
        client.subscribe("room/go") { event -> offsets.trySend((event as? Message)?.position?.offset) }.ready()
        network.publish()
        assertEquals(1L, offsets.receive())
        network.change()
        network.publish()
        val call = async { failureOf { client.call("ECHO") } }
        eventually { client.connection != null }
        client.wake()
        assertTrue(call.await().outcomeUnknown)
        assertEquals(2L, offsets.receive())
        network.publish()
        assertEquals(3L, offsets.receive())
        assertTrue(network.connections >= 2)
    }

    @Test
    fun `sleep is noticed without wake`() = test { client ->
        client.connect()
        val lost = lossOf(client)
        network.change()
        lost.await() // after 35 s
        client.connect()
        assertEquals(Number(7), client.call<_, Number>("ECHO", Number(7)))
        assertTrue(network.connections >= 2)
    }

    @Test
    fun `canceled call is aborted`() = test { client ->
        val call = launch { client.call("WAIT") }
        eventually { network.received.any { it.type == "WAIT" } }
        call.cancelAndJoin()
        eventually { network.received.any { it.type == "\$ws:abort" } }
        assertEquals(Number(1), client.call<_, Number>("ECHO", Number(1)))
    }

    @Test
    fun `stream has its items and its reply`() = test { client ->
        val reply = CompletableDeferred<JsonElement>()
        assertEquals(
            listOf("""{"id":0}""", """{"id":1}""", """{"id":2}"""),
            client.stream("EXPORT", onReply = reply::complete).toList().map {
                it.toString()
            },
        )
        assertEquals("""{"rows":3}""", reply.await().toString())
    }

    @Test
    fun `collector that leaves a stream ends it`() = test { client ->
        assertEquals(listOf(0, 1), client.stream<_, Int>("BIG_EXPORT", Number(1)).take(2).toList())
        eventually { network.received.any { it.type == "\$ws:abort" } }
        assertEquals(16, network.received.first { it.type == "BIG_EXPORT" }.meta.long("credit"))
    }

    @Test
    fun `each collector of a topic is a subscription that ends with it`() = test { client ->
        val flow = client.topic("room/go")
        assertEquals(0, network.received.size)
        val first = async { flow.first() }
        eventually { network.received.any { it.type == "\$ws:subscribe" } }
        client.call<_, Number>("ECHO", Number(1))
        network.publish()
        assertEquals(Position("K", 1), (first.await() as Message).position)
        eventually { network.received.any { it.type == "\$ws:unsubscribe" } }
    }

    @Test
    fun `collector that is far behind has one loss`() = test { client ->
        val got = ArrayList<TopicEvent>()
        val started = CompletableDeferred<Unit>()
        val goOn = CompletableDeferred<Unit>()
        val collecting = launch {
            client.topic("room/go").take(MAX_UNREAD + 2).collect {
                got.add(it)
                started.complete(Unit)
                goOn.await()
            }
        }
        eventually { network.received.any { it.type == "\$ws:subscribe" } }
        client.call<_, Number>("ECHO", Number(1))
        network.publish()
        started.await()
        repeat(MAX_UNREAD + 50) { network.publish() }
        client.call<_, Number>("ECHO", Number(1))
        goOn.complete(Unit)
        collecting.join()
        assertEquals(MAX_UNREAD + 1, got.count { it is Message })
        assertEquals(Loss("room/go"), got.last())
    }

    @Test
    fun `rejected subscription fails its flow and its handler`() = test { client ->
        assertEquals("PERMISSION_DENIED", failureOf { client.topic("forbidden").toList() }.code)
        val ended = CompletableDeferred<PenstockException>()
        val subscription = client.subscribe("forbidden", onEnd = ended::complete) {}
        assertEquals("PERMISSION_DENIED", failureOf { subscription.ready() }.code)
        assertEquals("PERMISSION_DENIED", ended.await().code)
    }

    @Test
    fun `failure of a listener is reported, and the next one is called`() = test { client ->
        val called = CompletableDeferred<Message>()
        client.on("SAID") { error("it fails") }
        client.on("SAID", called::complete)
        client.connect()
        network.push("SAID", """{"n":1}""")
        assertEquals(Number(1), client.decode<Number>(called.await()))
        eventually { errors.size == 1 }
        assertEquals("it fails", errors.single().message)
    }

    @Test
    fun `removed listener is not called`() = test { client ->
        val calls = CopyOnWriteArrayList<Message>()
        client.on("SAID", calls::add).close()
        client.connect()
        network.push("SAID", "{}")
        client.call<_, Number>("ECHO", Number(1))
        assertTrue(calls.isEmpty())
    }

    @Test
    fun `call of the server that is aborted before its handler begins has ended`() = test { client ->
        client.handle("ASK_USER", "USER_ANSWER") { _: JsonElement? -> awaitCancellation() }
        client.connect()
        val id = mapOf("correlationId" to JsonPrimitive("\$ws:1"))
        network.push("ASK_USER", "{}", id)
        network.push("\$ws:abort", "", id)
        client.handle<Number, Number>("DOUBLE", "DOUBLED") { Number(2 * it.n) }
        network.push("DOUBLE", """{"n":4}""", mapOf("correlationId" to JsonPrimitive("\$ws:2")))
        eventually { network.received.any { it.type == "DOUBLED" } }
        assertEquals(8, network.received.last { it.type == "DOUBLED" }.fields.long("n"))
        assertFalse(network.received.any { it.type == "USER_ANSWER" })
    }

    @Test
    fun `token is refreshed once, and a rejected one is said to be expired`() {
        val asked = CopyOnWriteArrayList<Boolean>()
        val bothWait = CompletableDeferred<Unit>()
        test({
            clock = Clock() // no attempt ends because the machine is busy
            token = { expired ->
                asked.add(expired)
                if (asked.size == 2) bothWait.await()
                "token ${asked.size}"
            }
        }) { client ->
            client.connect()
            val refreshes = List(2) { async(start = CoroutineStart.UNDISPATCHED) { client.authenticate() } }
            client.nextAllowedInMs("SAY") // behind both
            bothWait.complete(Unit)
            refreshes.forEach { it.await() }
            val lost = lossOf(client)
            network.close(4401, """{"code":"UNAUTHENTICATED"}""")
            lost.await()
            client.connect()
        }
        assertEquals(listOf("token 1", "token 2", "token 3"), network.tokens.toList())
        assertEquals(listOf(false, false, true), asked.toList())
    }

    @Test
    fun `invalid URL and a closed client fail at once`() = test({ }) { client ->
        val invalid = Client("https://fake/") { transport = network }
        assertEquals("FAILED_PRECONDITION", failureOf { invalid.connect() }.code)
        assertEquals(State.CLOSED, invalid.state.value)
        client.connect()
        client.close()
        assertEquals("UNAVAILABLE", failureOf { client.send("SAY") }.code)
        client.connect()
        client.send("SAY")
    }

    @Test
    fun `payload without a member is a SerializationException`() = test { client ->
        try {
            client.call<String, Number>("ECHO", "text")
            fail<Unit>("it has not failed")
        } catch (error: SerializationException) {
            assertTrue(error.message.orEmpty().isNotEmpty())
        }
    }

    @Test
    fun `listener that blocks holds the socket back`() {
        val open = java.util.concurrent.CountDownLatch(1)
        val handled = CopyOnWriteArrayList<Message>()
        test { client ->
            client.on("SAID") {
                open.await()
                handled.add(it)
            }
            client.connect()
            val pushing = Thread { repeat(MAX_UNREAD + 50) { network.push("SAID", """{"n":$it}""") } }
            pushing.start()
            delay(300)
            assertTrue(pushing.isAlive)
            open.countDown()
            eventually { handled.size == MAX_UNREAD + 50 }
        }
    }
}
