import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import penstock.client.Client
import penstock.client.PenstockException
import penstock.client.SubscribeOptions
import talk.Answer
import talk.Ask
import talk.AskError
import talk.Circle
import talk.Color
import talk.Confirmed
import talk.Contract
import talk.ErrorCode
import talk.Export
import talk.Origin
import talk.RoomEvent
import talk.Square
import talk.State
import talk.Thing
import kotlin.system.exitProcess

// Prints what a server of the contract answers.

suspend fun run(contract: Contract) {
    contract.handleConfirm { request -> Confirmed(yes = request.text == "sure?") }
    val progress = mutableListOf<Long>()
    println("called: ${contract.ask(Ask(Question = "easy"), onProgress = { progress += it.percent }).text} after $progress")
    for (question in listOf("unknown", "hard", "")) {
        try {
            val answer: Answer = contract.ask(Ask(Question = question))
            println("answered: $answer")
        } catch (error: PenstockException) {
            when (val declared = contract.askError(error)) {
                is AskError.NotFound -> println("failed: ${declared.error.message}")
                is AskError.Hard -> println("failed: level ${declared.details.level}, ${declared.details.origin == Origin("sea")}")
                null -> println("failed: ${error.code == ErrorCode.INVALID_ARGUMENT}")
            }
        }
    }
    val rows = contract.export(Export(table = "t"), onReply = { println("exported: ${it.rows}") }).toList()
    println("rows: ${rows.map { it.cells }}")
    contract.ping()
    println("published: ${contract.roomTopic("go", SubscribeOptions(last = 1)).first { it !is RoomEvent.Other }.describe()}")
}

fun RoomEvent.describe(): String = when (this) {
    is RoomEvent.PublishedMessage -> {
        val shapes = payload.shapes.map { shape ->
            when (shape) {
                is Circle -> "circle ${shape.radius}"
                is Square -> "square ${shape.side}"
                null -> "none"
            }
        }
        "$shapes, ${payload.states == listOf(State.CLOSED, State("sold"))}, ${payload.color == Color.DARK_GREEN}"
    }
    is RoomEvent.Other -> "another event"
}

fun main(arguments: Array<String>) {
    runBlocking {
        val client = Client(arguments[0])
        val contract = Contract(client)
        try {
            println(client.json.encodeToString(contract.thing(client.json.decodeFromString<Thing>(arguments[1]))))
            run(contract)
        } finally {
            client.close()
        }
    }
    exitProcess(0)
}
