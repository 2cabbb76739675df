package contract

import "strings"

// This file has the class Contract in Kotlin, and the types of errors and topics.

// client writes the class Contract. The names of its methods are those of the types of messages.
func (k *kotlin) client(hash string) {
	all := k.doc.typed(k)
	methods := kotlinNames{}
	b := &k.class
	b.WriteString("\n/** The client, with methods that are typed by the messages of the server. */\n" +
		"public class Contract(public val client: penstock.client.Client) {\n")
	for _, m := range all.calls {
		k.call(methods.unique(kotlinMethod(m.name)), m)
	}
	for _, m := range all.events {
		k.method(m.documentation(), "suspend fun "+methods.unique(kotlinMethod(m.name))+"("+k.payload(m)+", maxWaitMs: Long? = null)",
			"client.send<"+m.request+">("+kotlinText(m.name)+", payload, maxWaitMs)", "")
	}
	for _, m := range all.streams {
		k.stream(methods.unique(kotlinMethod(m.name)), m)
	}
	for _, m := range all.received {
		k.method(m.documentation(), "fun "+methods.unique("on"+kotlinClass(m.name))+"(listener: ("+m.request+", penstock.client.Message) -> Unit)",
			"client.on("+kotlinText(m.name)+") { listener(client.decode(it), it) }", "AutoCloseable")
	}
	for _, m := range all.served {
		k.method(m.documentation(), "fun "+methods.unique("handle"+kotlinClass(m.name))+"(handler: suspend ("+m.request+") -> "+m.reply+")",
			"client.handle<"+m.request+", "+m.reply+">("+kotlinText(m.name)+", "+kotlinText(m.replyName)+", handler)", "")
	}
	for _, list := range [][]message{all.calls, all.streams, all.events} {
		for _, m := range list {
			k.failures(methods, m)
		}
	}
	for _, t := range all.topics {
		k.topic(methods, t)
	}
	b.WriteString("\n    public companion object {\n        /** Another hash at the greeting is that of a server with another version of these messages. */\n" +
		"        public const val HASH: String = " + kotlinText(hash) + "\n    }\n}\n")
}

// method writes a method that is one expression. result is empty if it returns nothing.
func (k *kotlin) method(description, signature, expression, result string) {
	text := "    public " + signature
	if result == "" {
		text += " {\n        " + expression + "\n    }\n"
	} else {
		text += ": " + result + " =\n        " + expression + "\n"
	}
	k.class.WriteString("\n" + kotlinDoc("    ", description) + text)
}

// payload returns the parameter for the payload of a message, which callers may leave out if it has no member that is required.
func (k *kotlin) payload(m message) string {
	parameter := "payload: " + m.request
	if !m.optional {
		return parameter
	}
	if value := k.empty[m.request]; value != "" {
		return parameter + " = " + value
	}
	if m.request == "JsonObject" {
		return parameter + " = JsonObject(emptyMap())"
	}
	return parameter + " = emptyMap()"
}

func (k *kotlin) call(name string, m message) {
	parameters := k.payload(m) + ", timeoutMs: Long? = null, idempotent: Boolean = false"
	expression := "client.call<" + m.request + ", " + m.reply + ">(" + kotlinText(m.name) + ", payload, timeoutMs, idempotent)"
	if m.progress != "" {
		parameters += ", onProgress: (" + m.progress + ") -> Unit = {}"
		expression = "client.decode(client.call(" + kotlinText(m.name) +
			", client.json.encodeToJsonElement(payload), timeoutMs, idempotent) { onProgress(client.decode(it)) })"
	}
	k.method(m.documentation(), "suspend fun "+name+"("+parameters+")", expression, m.reply)
}

func (k *kotlin) stream(name string, m message) {
	parameters := k.payload(m) + ", timeoutMs: Long? = null, credit: Int = penstock.client.DEFAULT_CREDIT"
	end := ")"
	if m.reply != "" {
		parameters += ", onReply: (" + m.reply + ") -> Unit = {}"
		end = ") { onReply(client.decode(it)) }"
	}
	k.method(m.documentation(), "fun "+name+"("+parameters+")",
		"client.stream<"+m.request+", "+m.item+">("+kotlinText(m.name)+", payload, timeoutMs, credit"+end, "Flow<"+m.item+">")
}

// failures writes a sealed class with the errors that a message declares, and a method that returns one.
func (k *kotlin) failures(methods kotlinNames, m message) {
	if len(m.failures) == 0 {
		return
	}
	name := k.names.unique(kotlinClass(m.name) + "Error")
	var classes, cases strings.Builder
	nested := kotlinNames{}
	for _, f := range m.failures {
		class, parameter, argument := k.nested(nested, kotlinClass(f.code)), "", ""
		if f.details != "" {
			parameter, argument = ", public val details: "+f.details, ", client.decode(error.details)"
		}
		classes.WriteString("    public class " + class + "(error: penstock.client.PenstockException" + parameter + ") : " + name + "(error)\n")
		cases.WriteString("            " + kotlinText(f.code) + " -> " + name + "." + class + "(error" + argument + ")\n")
	}
	k.declare("An error that "+m.name+" declares.",
		"public sealed class "+name+"(public val error: penstock.client.PenstockException) {\n"+classes.String()+"}\n")
	k.method("Returns an error of "+m.name+" by its code, or null if the contract does not declare it for this message.",
		"fun "+methods.unique(kotlinMethod(m.name)+"Error")+"(error: penstock.client.PenstockException)",
		"when (error.code) {\n"+cases.String()+"            else -> null\n        }", name+"?")
}

// nested returns the name of a class in another one. It hides no type of the file, which the other may use.
func (k *kotlin) nested(names kotlinNames, name string) string {
	for k.names[name] {
		name += "_"
	}
	return names.unique(name)
}

// topic writes a sealed interface with what a topic carries, and a method that returns its flow.
func (k *kotlin) topic(methods kotlinNames, t typedTopic) {
	base := identifier(strings.Join(words(t.parts), ""))
	if base != "" {
		base = capitalize(kotlinIdentifier(base))
	}
	name := k.names.unique(base + "Event")
	var classes, cases strings.Builder
	nested := kotlinNames{"Other": true}
	for _, m := range t.messages {
		class := k.nested(nested, kotlinClass(m.name)+"Message")
		classes.WriteString("    public class " + class + "(public val payload: " + m.request + ", public val message: penstock.client.Message) : " + name + "\n")
		cases.WriteString("                " + kotlinText(m.name) + " -> " + name + "." + class + "(client.decode(event), event)\n")
	}
	k.declare("What a subscription to "+t.pattern+" receives.", "public sealed interface "+name+" {\n"+classes.String()+"\n"+
		kotlinDoc("    ", "A Loss, a Reset, Members, or a Message of another version of the server.")+
		"    public class Other(public val event: penstock.client.TopicEvent) : "+name+"\n}\n")
	parameters, text := kotlinTopicName(t)
	k.method("Returns the events of "+t.pattern+".", "fun "+methods.unique(lowerFirst(base+"Topic"))+"("+parameters+")",
		`client.topic("`+text+`", options).map { event ->
            if (event !is penstock.client.Message) return@map `+name+`.Other(event)
            when (event.type) {
`+cases.String()+"                else -> "+name+".Other(event)\n            }\n        }", "Flow<"+name+">")
}

// kotlinTopicName returns the parameters of a method for a pattern, and the text in which it inserts them.
func kotlinTopicName(t typedTopic) (parameters, text string) {
	names, text := kotlinNames{"client": true, "event": true, "options": true, "penstock": true}, kotlinEscape(t.parts[0])
	for i, wildcard := range t.parameters {
		name := names.unique(kotlinIdentifier(wildcard))
		parameters += name + ": String, "
		text += "${" + name + "}" + kotlinEscape(t.parts[i+1])
	}
	return parameters + "options: penstock.client.SubscribeOptions = penstock.client.SubscribeOptions()", text
}
