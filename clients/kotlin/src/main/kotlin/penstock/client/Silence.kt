package penstock.client

private const val WAKE_PROBE = 3.0

/** Finds connections that have been lost without a notice: after silence, it sends a heartbeat, which the server answers. */
internal class Silence(private val env: Env, private val outbox: Outbox, private val lost: (Link) -> Unit) {
    private var most = 25.0 // seconds of silence before a heartbeat
    private var patience = 10.0 // for its answer
    private var heard = true // something since the last heartbeat
    private var heardAt = 0.0
    private var due = 0.0 // when the timer checks that
    private var link: Link? = null
    private var timer: Timer? = null

    /** Takes the times of the server in seconds. */
    fun bounds(silence: Double, patience: Double) {
        most = silence
        this.patience = patience
    }

    /** Something was received. */
    fun heard() {
        heard = true
        heardAt = env.now()
    }

    fun watch(link: Link) {
        this.link = link
        checkIn(most)
    }

    fun stop() {
        link = null
        timer?.cancel()
    }

    /** Probes the connection at once, and gives it little time. An earlier end of an unanswered heartbeat is not delayed. */
    fun wake() {
        val link = link ?: return
        if (heard || env.now() < due - WAKE_PROBE) probe(link, WAKE_PROBE)
    }

    private fun probe(link: Link, seconds: Double) {
        heard = false
        outbox.tell(link, "__heartbeat")
        checkIn(seconds)
    }

    private fun checkIn(seconds: Double) {
        due = env.now() + seconds
        timer?.cancel()
        timer = env.after(seconds) { check(seconds) }
    }

    /** Timers may be late: only silence by the clock counts, and after a suspension messages may wait unread. */
    private fun check(seconds: Double) {
        val link = link ?: return
        val silent = env.now() - heardAt
        if (!heard && env.now() <= due + seconds) {
            lost(link)
        } else if (heard && silent < most) {
            checkIn(most - silent)
        } else {
            probe(link, patience)
        }
    }
}
