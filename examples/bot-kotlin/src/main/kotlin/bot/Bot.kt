package bot

import kotlinx.coroutines.CoroutineExceptionHandler
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.supervisorScope
import penstock.client.Client
import penstock.client.PenstockException
import penstock.client.State
import kotlin.random.Random

const val NAME = "bot"
const val HELP = "I know !who, !roll and !find WORDS"

suspend fun answer(chat: Contract, said: Said): String {
    val words = said.text.substringAfter(' ', "")
    return when (said.text.substringBefore(' ')) {
        "!who" -> "here are " + chat.who(Who(said.room)).users.joinToString()
        "!roll" -> "${said.user} rolls ${Random.nextInt(1, 7)}"
        "!find" -> "${chat.searchHistory(SearchHistory(query = words, room = said.room)).matches.size} messages have '$words'"
        else -> HELP
    }
}

suspend fun reply(chat: Contract, said: Said) {
    val text = try {
        answer(chat, said)
    } catch (error: PenstockException) {
        error.message // which is for users
    }
    // Sent again after an interruption, the answer is published once, because of its ID.
    chat.say(Say(id = "re-" + said.id, room = said.room, text = text), idempotent = true)
}

/** A user of the chat example that answers commands. The arguments are a room and the URL of the chat. */
fun main(arguments: Array<String>): Unit = runBlocking(CoroutineExceptionHandler { _, error -> System.err.println(error) }) {
    val room = arguments.getOrElse(0) { "lobby" }
    // Sent too fast, messages wait until the limits permit them.
    val client = Client(arguments.getOrElse(1) { "ws://localhost:8080/ws" }) {
        token = { NAME }
        pacing = true
        resume = true
    }
    val chat = Contract(client)
    supervisorScope {
        chat.onSaid { said, _ ->
            if (said.text.startsWith("!") && said.user != NAME) launch { reply(chat, said) }
        }
        client.onState { state, info ->
            val isNew = state == State.OPEN && !info.resumed // a resumed session is still in the room
            if (isNew) launch { chat.joinRoom(JoinRoom(offset = 0, room = room), idempotent = true) }
        }
        client.connect()
        awaitCancellation() // until Ctrl-C
    }
}
