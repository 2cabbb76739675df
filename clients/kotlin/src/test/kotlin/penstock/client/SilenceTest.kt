package penstock.client

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Connections that are lost without a notice: a changed network, and a device that sleeps. */
class SilenceTest {
    private val s = Simulated()

    private fun heartbeats() = s.of("__heartbeat").size

    private fun hear() {
        s.core.received(s.link, """{"type":"__heartbeat_ack","meta":{"ts":1}}""")
        s.run()
    }

    @Test
    fun `silent connection is probed, and replaced if it does not answer`() {
        s.open()
        s.wait(26.0)
        assertEquals(1, heartbeats())
        hear()
        s.wait(26.0)
        assertEquals(2, heartbeats())
        assertEquals(State.OPEN, s.core.connection.state)
        s.wait(10.0)
        assertNotEquals(State.OPEN, s.core.connection.state)
        assertTrue(s.done.any { it is Action.Close && it.code == null })
    }

    @Test
    fun `late timer does not end a connection`() {
        s.open()
        s.wait(26.0)
        s.sleep(3_600.0) // messages may wait unread
        assertEquals(State.OPEN, s.core.connection.state)
        assertEquals(2, heartbeats())
    }

    @Test
    fun `wake finds a lost connection within three seconds`() {
        s.open()
        s.core.connection.wake()
        s.run()
        assertEquals(1, heartbeats())
        s.wait(2.9)
        s.core.connection.wake() // does not delay it
        s.wait(0.2)
        assertEquals(State.WAITING, s.core.connection.state)
        assertEquals(1, heartbeats())
    }

    @Test
    fun `wake keeps a connection that answers`() {
        s.open()
        s.core.connection.wake()
        s.run()
        hear()
        s.wait(20.0)
        assertEquals(State.OPEN, s.core.connection.state)
    }

    @Test
    fun `wake begins an attempt, at most one in a second`() {
        s.core.connection.start()
        s.run()
        repeat(8) {
            // until delays are long
            s.core.closed(s.link, 1006, "")
            s.run()
            if (it < 7) s.wait(30.0)
        }
        val before = s.dials.size
        s.core.connection.wake()
        s.wait(0.0)
        assertEquals(before + 1, s.dials.size)
        s.core.closed(s.link, 1006, "")
        s.run()
        s.core.connection.wake()
        s.wait(0.9)
        assertEquals(before + 1, s.dials.size)
        s.wait(0.2)
        assertEquals(before + 2, s.dials.size)
    }

    @Test
    fun `wake obeys the delay of the server`() {
        s.open()
        s.core.closed(s.link, 1012, """{"code":"UNAVAILABLE","retryAfterMs":60000}""")
        s.run()
        s.core.connection.wake()
        s.wait(59.0)
        assertEquals(1, s.dials.size)
        s.wait(2.0)
        assertEquals(2, s.dials.size)
    }
}
