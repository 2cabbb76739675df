package penstock.client

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import kotlinx.serialization.json.JsonObject
import okhttp3.OkHttpClient
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable
import java.io.File
import java.net.InetAddress
import java.net.InetSocketAddress
import java.net.Proxy
import java.net.ServerSocket
import java.security.KeyStore
import java.security.cert.CertificateFactory
import java.util.concurrent.CopyOnWriteArrayList
import javax.net.ssl.SSLContext
import javax.net.ssl.TrustManagerFactory
import javax.net.ssl.X509TrustManager
import kotlin.concurrent.thread
import java.net.Socket as TcpSocket

/** The client and the examples of README.md, with the servers of the package kotlinclient of the tests in Go. */
@EnabledIfEnvironmentVariable(named = "PENSTOCK_URL", matches = ".+", disabledReason = "PENSTOCK_URL has no server")
class ServerTest {
    private val url = System.getenv("PENSTOCK_URL")
    private val secureUrl = System.getenv("PENSTOCK_TLS_URL")
    private val printed = CopyOnWriteArrayList<String>()

    private fun println(text: Any?) {
        printed.add(text.toString())
    }

    private fun test(
        target: String = url,
        configure: Options.() -> Unit = {
        },
        body: suspend CoroutineScope.(Client) -> Unit,
    ) = runBlocking {
        val client = Client(target, configure)
        try {
            withTimeout(60_000) { body(client) }
        } finally {
            client.close()
        }
    }

    @Test
    fun `examples print what they promise`() = test { client ->
        calls(url, ::println)
        streams(client, ::println)
        serverCalls(client)
        assertEquals("""{"deleted":true}""", client.call<_, JsonObject>("DELETE_ROOM", Say("go", "")).toString())
        topics(client, ::println)
        assertEquals(listOf("[hi]", "NOT_FOUND {} null", "0", "1", "2", """{"rows":3}""", "1 member", "hi"), printed.toList())
    }

    @Test
    fun `program in Java calls, sends and listens`() {
        assertEquals(setOf("""{"texts":["hi"]}""", """{"text":"hi"}"""), JavaProgram.run(url).toSet())
        assertTrue(JavaProgram.delete(url))
        assertEquals("NOT_FOUND", JavaProgram.failure(url))
    }

    @Test
    fun `refused handshake has the error of the server`() = test(configure = { token = { "wrong" } }) { client ->
        val refused = CompletableDeferred<StateInfo>()
        client.onState { state, info -> if (state == State.WAITING) refused.complete(info) }
        val connecting = launch { runCatching { client.connect() } }
        assertEquals("UNAUTHENTICATED", refused.await().error?.code)
        assertEquals(4401, refused.await().closeCode)
        connecting.cancel()
    }

    @Test
    fun `TLS with the certificate of the server`() = test(secureUrl, {
        http = trusting(File(System.getenv("PENSTOCK_CERTIFICATE")))
    }) { client ->
        assertEquals("""{"n":7}""", client.call("ECHO", json("""{"n":7}""")).toString())
    }

    @Test
    fun `TLS with an unknown certificate is refused`() = test(secureUrl) { client ->
        val failed = CompletableDeferred<StateInfo>()
        client.onState { state, info -> if (state == State.WAITING) failed.complete(info) }
        val connecting = launch { runCatching { client.connect() } }
        val cause = failed.await().error?.cause
        assertTrue(cause is javax.net.ssl.SSLException, "$cause")
        connecting.cancel()
    }

    @Test
    fun `connection through a proxy`() {
        val asked = CopyOnWriteArrayList<String>()
        ServerSocket(0, 10, InetAddress.getLoopbackAddress()).use { listener ->
            thread(isDaemon = true) { runCatching { while (true) relay(listener.accept(), asked) } }
            val proxy = Proxy(Proxy.Type.HTTP, InetSocketAddress("127.0.0.1", listener.localPort))
            test(configure = { http = OkHttpClient.Builder().proxy(proxy).build() }) { client ->
                assertEquals("""{"n":7}""", client.call("ECHO", json("""{"n":7}""")).toString())
            }
        }
        assertEquals(1, asked.size)
    }

    @Test
    fun `long message arrives compressed`() = test { client ->
        val text = "x".repeat(10_000)
        client.send("SAY", Say("compressed", text))
        assertEquals(text, client.call<_, History>("GET_HISTORY", GetHistory("compressed")).texts.last())
    }

    /** Passes bytes on to the server after the first line, which names it. */
    private fun relay(from: TcpSocket, asked: MutableList<String>) = thread(isDaemon = true) {
        val input = from.getInputStream()
        val line = generateSequence { input.read().toChar() }.takeWhile { it != '\n' }.joinToString("").trim()
        asked.add(line)
        val target = line.split(" ")[1].removePrefix("http://").substringBefore("/").split(":")
        val to = TcpSocket(target[0], target[1].toInt())
        if (line.startsWith("CONNECT")) {
            while (generateSequence { input.read().toChar() }.takeWhile { it != '\n' }.joinToString("").isNotBlank()) Unit
            from.getOutputStream().write("HTTP/1.1 200 OK\r\n\r\n".toByteArray())
        } else {
            to.getOutputStream().write("$line\r\n".toByteArray())
        }
        thread(isDaemon = true) { runCatching { to.getInputStream().copyTo(from.getOutputStream()) } }
        runCatching { input.copyTo(to.getOutputStream()) }
    }

    private fun trusting(certificate: File): OkHttpClient {
        val keys = KeyStore.getInstance(KeyStore.getDefaultType()).apply { load(null) }
        keys.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(certificate.inputStream()))
        val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm()).apply {
            init(keys)
        }.trustManagers.single() as X509TrustManager
        val context = SSLContext.getInstance("TLS").apply { init(null, arrayOf(trust), null) }
        return OkHttpClient.Builder().sslSocketFactory(context.socketFactory, trust).build()
    }
}
