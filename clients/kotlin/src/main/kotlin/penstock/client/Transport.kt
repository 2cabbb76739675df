package penstock.client

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import okhttp3.Dispatcher
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.Response
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import okio.ByteString
import java.util.concurrent.SynchronousQueue
import java.util.concurrent.ThreadPoolExecutor
import java.util.concurrent.TimeUnit

private const val HTTP_BASE = 4000 // the close code of a refused handshake is this plus the status
private const val MAX_ERROR_BYTES = 16_384L // of a refused handshake

/** What happens to a socket. The functions are called on threads of the transport. */
internal interface SocketListener {
    fun opened()

    /** A message has arrived. It may block, and the socket is not read meanwhile. */
    fun received(text: String)

    fun closed(code: Int, reason: String)

    fun failed(cause: Throwable)
}

internal interface Socket {
    /** Bytes that were not written yet. */
    val buffered: Long

    fun write(text: String)

    /** Sends a close frame after what was written. */
    fun close(code: Int)

    /** Closes the socket at once. */
    fun abort()
}

/** Opens sockets. It throws IllegalArgumentException if the URL is invalid. */
internal fun interface Transport {
    fun connect(url: String, token: String?, listener: SocketListener): Socket
}

/** Daemon threads, so that they keep no process alive, and no bound: each connection has one. */
private val threads by lazy {
    val executor = ThreadPoolExecutor(0, Int.MAX_VALUE, 10, TimeUnit.SECONDS, SynchronousQueue()) { work ->
        Thread(work, "penstock").apply { isDaemon = true }
    }
    Dispatcher(executor).apply {
        maxRequests = Int.MAX_VALUE
        maxRequestsPerHost = Int.MAX_VALUE
    }
}

private val defaultClient by lazy { OkHttpClient() }

/** Connections by OkHttp. */
internal class OkHttpTransport(http: OkHttpClient?, private val headers: Map<String, String>) : Transport {
    private val client by lazy {
        (http ?: defaultClient).newBuilder()
            .dispatcher(threads)
            // The core bounds attempts, and notices silence.
            .callTimeout(0, TimeUnit.MILLISECONDS)
            .readTimeout(0, TimeUnit.MILLISECONDS)
            // Another address might receive the token.
            .followRedirects(false)
            .followSslRedirects(false)
            .build()
    }

    override fun connect(url: String, token: String?, listener: SocketListener): Socket {
        val request = Request.Builder().url(url).header("User-Agent", "penstock-client (Kotlin)")
        headers.forEach { (name, value) -> request.header(name, value) }
        if (token != null) request.header("Authorization", "Bearer $token")
        val socket = client.newWebSocket(request.build(), Events(listener))
        return object : Socket {
            override val buffered get() = socket.queueSize()

            override fun write(text: String) {
                socket.send(text)
            }

            override fun close(code: Int) {
                socket.close(code, null)
            }

            override fun abort() = socket.cancel()
        }
    }

    private class Events(private val listener: SocketListener) : WebSocketListener() {
        override fun onOpen(webSocket: WebSocket, response: Response) = listener.opened()

        override fun onMessage(webSocket: WebSocket, text: String) = listener.received(text)

        override fun onMessage(webSocket: WebSocket, bytes: ByteString) = listener.received(bytes.utf8())

        override fun onClosing(webSocket: WebSocket, code: Int, reason: String) {
            webSocket.close(1000, null)
            listener.closed(code, reason)
        }

        override fun onFailure(webSocket: WebSocket, t: Throwable, response: Response?) {
            if (response == null ||
                response.code == 101
            ) {
                listener.failed(t)
            } else {
                listener.closed(HTTP_BASE + response.code, reasonOf(response))
            }
        }
    }
}

/** Returns the close reason with the meaning of a response. */
private fun reasonOf(response: Response): String {
    val error = try {
        Json.parseToJsonElement(response.peekBody(MAX_ERROR_BYTES).string()) as? JsonObject
    } catch (_: Exception) {
        null // of a proxy
    }
    val members = LinkedHashMap(error.orEmpty())
    members.getOrPut("code") { JsonPrimitive("UNAVAILABLE") }
    members.getOrPut("message") { JsonPrimitive("the server has refused the connection with ${response.code}") }
    val seconds = response.header("Retry-After")?.toLongOrNull()
    if ("retryAfterMs" !in members && seconds != null) members["retryAfterMs"] = JsonPrimitive(seconds * 1000)
    return JsonObject(members).toString()
}
