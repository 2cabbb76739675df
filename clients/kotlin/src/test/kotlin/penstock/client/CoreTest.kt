package penstock.client

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** The core, without sockets and without waiting. */
class CoreTest {
    @Test
    fun `idempotent call is sent again after an interruption`() {
        val s = Simulated()
        s.open()
        s.submit("ASK", idempotent = true)
        s.submit("PAY")
        s.cut()
        assertEquals(listOf(true), s.errors.map { it.outcomeUnknown })
        s.wait(1.0)
        s.open()
        val (first, second) = s.of("ASK")
        assertNotEquals(first.meta().text("correlationId"), second.meta().text("correlationId"))
        s.answer(second, "ANSWER", """{"n":2}""")
        assertEquals(null to json("""{"n":2}"""), s.settled.last())
        assertEquals(1, s.of("PAY").size)
    }

    @Test
    fun `full queue counts bytes of UTF-8`() {
        val s = Simulated(Queue(maxBytes = 20))
        repeat(4) { s.submit("SAY", oneWay = true) }
        assertEquals(listOf("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"), s.errors.map { it.code })
        assertEquals(listOf(1, 2, 3, 4), listOf("a", "é", "€", "😀").map(::utf8Size))
    }

    @Test
    fun `message above the limit of the server is not sent`() {
        val s = Simulated()
        s.open("""{"maxMessageBytesByType":{"SAY":10}}""")
        s.submit("SAY", oneWay = true)
        assertEquals("payload", s.errors.single().details.text("kind"))
        assertEquals(PenstockException.NEVER, s.errors.single().retryAfterMs)
        assertTrue(s.of("SAY").isEmpty())
    }

    @Test
    fun `connection with a full buffer sends nothing more`() {
        val s = Simulated()
        s.open()
        var buffered = 2_000_000L
        s.link.buffered = { buffered }
        s.submit("ASK")
        s.wait(1.0)
        assertTrue(s.of("ASK").isEmpty())
        buffered = 0
        s.wait(1.0)
        assertEquals(1, s.of("ASK").size)
    }

    @Test
    fun `subscription at an older position receives what others have`() {
        val s = Simulated()
        s.open()
        val first = s.subscribe()
        s.accept("""{"topic":"room","epoch":"K1","offset":5,"recovered":true}""")
        val late = s.subscribe(SubscribeOptions(Position("K1", 3)))
        assertEquals(3, s.of("\$ws:subscribe").last().payload().long("offset"))
        s.accept("""{"topic":"room","epoch":"K1","offset":3,"recovered":true}""")
        listOf(4L, 5L, 6L).forEach(s::publish)
        assertEquals(listOf<Any>(6L), s.delivered(first))
        assertEquals(listOf<Any>(4L, 5L, 6L), s.delivered(late))
    }

    @Test
    fun `topic without presence is reported`() {
        val s = Simulated()
        s.open()
        s.subscribe(SubscribeOptions(presence = true))
        s.accept("""{"topic":"room"}""")
        assertEquals("FAILED_PRECONDITION", (s.reports().single() as PenstockException).code)
    }

    @Test
    fun `latest publications of a topic without a history are reported`() {
        val s = Simulated()
        s.open()
        s.subscribe(SubscribeOptions(last = 5))
        assertEquals(5, s.of("\$ws:subscribe").last().payload().long("last"))
        s.accept("""{"topic":"room"}""")
        assertEquals("FAILED_PRECONDITION", (s.reports().single() as PenstockException).code)
    }

    @Test
    fun `topic is hidden while all its subscriptions are`() {
        val s = Simulated()
        s.open()
        val asked = ArrayList<Boolean>()
        fun answer() {
            s.run()
            for (request in s.of("\$ws:subscribe").drop(asked.size)) {
                asked.add(request.payload().flag("hidden"))
                s.answer(request, "\$ws:subscribed", """{"topic":"room"}""")
            }
        }
        val hidden = s.subscribe(SubscribeOptions(hidden = true))
        answer()
        val shown = s.subscribe()
        answer()
        assertEquals(listOf(true, false), asked)
        s.core.topics.unsubscribe(hidden)
        s.subscribe(SubscribeOptions(hidden = true))
        answer()
        s.core.topics.unsubscribe(shown)
        answer()
        assertEquals(listOf(true, false, true), asked)
    }

    @Test
    fun `session is resumed with its token and positions`() {
        val s = Simulated(resume = true)
        s.open("""{"session":{"token":"t1","resumeWithinMs":120000}}""")
        assertTrue(s.of("\$ws:hello").single().payload().flag("session"))
        val sub = s.subscribe()
        s.accept("""{"topic":"room","epoch":"K1","offset":5,"recovered":true}""")
        s.publish(6)
        s.cut()
        s.wait(1.0)
        s.open()
        val resume = s.of("\$ws:resume").single().payload()
        assertEquals("t1", resume.text("token"))
        assertEquals(6, resume.objects("topics").single().long("offset"))
        val answer = """{"session":{"token":"t2"},"memberId":"M","topics":[{"topic":"room","epoch":"K1","offset":6,"recovered":true}]}"""
        s.answer(s.of("\$ws:resume").single(), "\$ws:resumed", answer)
        s.publish(7)
        assertEquals(listOf<Any>(6L, 7L), s.delivered(sub))
        assertEquals(State.OPEN, s.core.connection.state)
        assertEquals(1, s.of("\$ws:ack").size)
        assertEquals("M", s.core.connection.about?.memberId)
    }

    @Test
    fun `closed client has no timers and rejects calls`() {
        val s = Simulated()
        s.open()
        s.submit("ASK")
        s.receive("\$ws:identity-expiring", """{"expiresInMs":60000}""")
        s.core.connection.close()
        s.run()
        assertNull(s.core.nextTimer())
        assertEquals(0, s.core.outbox.waitingCount + s.core.outbox.unanswered)
        assertThrows(PenstockException::class.java) { s.submit("ASK") }
    }

    @Test
    fun `message that no decoder can read is reported`() {
        val s = Simulated()
        s.open()
        for (text in listOf("[".repeat(1_000_000), "{", "[]", """{"type":1}""", """{"type":"A","meta":[]}""")) s.core.received(s.link, text)
        s.run()
        assertEquals(5, s.reports().size)
        assertEquals(State.OPEN, s.core.connection.state)
    }

    @Test
    fun `error of a close frame has its delay`() {
        assertEquals(1_250, closeError(1013, """{"code":"RESOURCE_EXHAUSTED","retryAfterMs":1250}""").retryAfterMs)
        assertEquals(PenstockException.NEVER, closeError(4429, """{"code":"X","retryAfterMs":null}""").retryAfterMs)
        assertNull(closeError(1000, "bye").retryAfterMs)
        assertFalse(closeError(1000, """{"code":"X","retryable":"true"}""").retryable)
        assertEquals(
            json("""{"code":"A","message":"b","retryable":false,"retryAfterMs":null}"""),
            encodeError(PenstockException("A", "b", retryAfterMs = PenstockException.NEVER)),
        )
    }

    @Test
    fun `thousand reconnections leave no timers and no links`() {
        val s = Simulated()
        s.subscribe()
        repeat(1_000) {
            s.open()
            s.submit("ASK")
            s.wait(6.0) // the connection is healthy
            s.cut()
            s.wait(1.0) // until the next attempt
            s.links.subList(0, s.links.size - 1).clear()
            listOf(s.sent, s.done, s.dials, s.settled).forEach { it.clear() }
        }
        s.core.connection.close()
        s.run()
        assertEquals(0, s.core.outbox.waitingCount + s.core.outbox.unanswered)
        assertEquals(0, s.core.topics.requests)
        assertNull(s.core.nextTimer())
    }
}
