package penstock.client

import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeoutOrNull
import okio.ByteString.Companion.encodeUtf8
import java.io.DataInputStream
import java.io.OutputStream
import java.net.InetAddress
import java.net.ServerSocket
import kotlin.concurrent.thread
import kotlin.experimental.xor

/** Connects once to a server of this process, so that classes are loaded before the clock of a scenario runs. */
internal fun warmUp() {
    ServerSocket(0, 1, InetAddress.getLoopbackAddress()).use { listener ->
        thread(isDaemon = true) { answer(listener) }
        runBlocking {
            val client = Client("ws://127.0.0.1:${listener.localPort}/")
            client.onError {}
            withTimeoutOrNull(20_000) {
                client.connect()
                client.subscribe("room/go", onEnd = {}) {}.ready()
                client.call("ASK", timeoutMs = 20_000)
            }
            client.close()
        }
    }
}

/** Answers greetings on one connection as a server does, and all other messages as subscriptions. */
private fun answer(listener: ServerSocket) = listener.accept().use { socket ->
    val input = DataInputStream(socket.getInputStream())
    val output = socket.getOutputStream()

    @Suppress("DEPRECATION") // the head is ASCII
    val head = generateSequence(input::readLine).takeWhile { it.isNotEmpty() }.toList()
    val key = head.first { it.startsWith("Sec-WebSocket-Key: ") }.substringAfter(": ")
    val accept = (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encodeUtf8().sha1().base64()
    val answer = listOf("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: $accept")
    output.write(answer.joinToString("\r\n", postfix = "\r\n\r\n").toByteArray())
    while (true) {
        val frame = decodeFrame(readText(input) ?: break)
        val type = if (frame.type == "\$ws:hello") "\$ws:welcome" else "\$ws:subscribed"
        writeText(output, """{"type":"$type","meta":{"correlationId":"${frame.id}"},"payload":{"connId":"C1","topic":"room/go"}}""")
    }
}

/** Returns the next text message of a client, of at most 64 KiB; null if there is none. */
private fun readText(input: DataInputStream): String? {
    if (input.readUnsignedByte() and 0xf != 1) return null
    val length = (input.readUnsignedByte() and 0x7f).let { if (it == 126) input.readUnsignedShort() else it }
    val mask = ByteArray(4).also(input::readFully)
    val data = ByteArray(length).also(input::readFully)
    for (i in data.indices) data[i] = data[i] xor mask[i % 4]
    return String(data)
}

private fun writeText(output: OutputStream, text: String) {
    val data = text.toByteArray()
    check(data.size < 126)
    output.write(byteArrayOf(0x81.toByte(), data.size.toByte()) + data)
}
