package penstock.client

import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.takeWhile
import kotlinx.serialization.Serializable

// The examples of README.md, which a test of the server runs and compares with that page.

// README: begin types
@Serializable
data class Say(val room: String, val text: String)

@Serializable
data class GetHistory(val room: String)

@Serializable
data class History(val texts: List<String>)
// README: end

@Serializable
data class ExportRows(val count: Int)

@Serializable
data class ExportedRow(val id: Int)

@Serializable
data class AskUser(val question: String)

@Serializable
data class UserAnswer(val yes: Boolean)

@Serializable
data class Said(val text: String)

internal suspend fun calls(url: String, println: (Any?) -> Unit) {
    // README: begin calls
    val client = Client(url) { timeoutMs = 5_000 }
    client.send("SAY", Say("kotlin", "hi")) // returns when the server has admitted it
    val history: History = client.call("GET_HISTORY", GetHistory("kotlin"))
    println(history.texts)
    try {
        client.call<_, History>("GET_HISTORY", GetHistory("rust"))
    } catch (error: PenstockException) {
        println("${error.code} ${error.details} ${error.retryAfterMs}") // NOT_FOUND {} null
    }
    // README: end
    client.close()
}

internal suspend fun streams(client: Client, println: (Any?) -> Unit) {
    // README: begin streams
    client.stream<_, ExportedRow>("EXPORT_ROWS", ExportRows(3), onReply = { println(it) }).collect { row ->
        println(row.id)
    }
    // README: end
}

internal suspend fun topics(client: Client, println: (Any?) -> Unit) {
    // README: begin topics
    client.topic("room/kotlin", SubscribeOptions(last = 50, presence = true)).takeWhile { event ->
        when (event) {
            is Message -> println(client.decode<Said>(event).text)
            is Members -> println("${event.members.size} member")
            is Loss -> println("load the room again")
            is Reset -> println("the state of the room follows")
        }
        event !is Message
    }.collect()
    // README: end
}

internal fun serverCalls(client: Client) {
    // README: begin served
    client.handle("ASK_USER", "USER_ANSWER") { request: AskUser ->
        UserAnswer(yes = request.question == "Delete go?")
    }
    // README: end
}
