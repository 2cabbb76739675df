package router_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A storyClient is a connection. Its name is that of its user, and a number if the user has several;
// "anon" is the name of clients that are not authenticated.
type storyClient struct {
	*routertest.Conn

	conn    *router.Conn // the server's side
	token   string
	first   string // the token of its own session
	log     string // the epoch of the messages to its user
	meta    string // of its calls, in addition
	calls   int
	waiting string   // the ID of the call whose answer has not been expected yet
	inbox   []string // what has arrived, without answers
	answers map[string]routertest.Frame
	offsets map[string]uint64 // up to which publications of a topic have arrived, or a notice
	state   storyState
}

func userOf(name string) string {
	return strings.TrimPrefix(strings.TrimRight(name, "0123456789"), "anon")
}

// connect: NAME NODE [VALID] connects a client, whose identity may expire.
func (w *storyWorld) connect(args []string) (string, error) {
	user := userOf(args[0])
	if len(args) > 2 {
		user += ":" + args[2]
	}
	s := dialSession(w.t, w.node(args[1]).Router, user)
	w.clients[args[0]] = &storyClient{Conn: s.Conn, conn: s.conn, answers: map[string]routertest.Frame{}, offsets: map[string]uint64{}}
	return "", nil
}

// open: connects a client and greets.
func (w *storyWorld) open(args []string) (string, error) {
	_, _ = w.connect(args)
	return w.greet(args)
}

// greet: NAME asks for a session, unless there are none.
func (w *storyWorld) greet(args []string) (string, error) {
	c := w.client(args[0])
	frame := w.call(c, "$ws:hello", `{"session":true}`)
	var welcome routertest.Welcome
	require.NoError(w.t, json.Unmarshal(frame.Payload, &welcome))
	if welcome.Session != nil {
		c.token = welcome.Session.Token
		c.first = cmp.Or(c.first, c.token)
	}
	return frame.Type, nil
}

// call sends a message of the protocol, and returns the answer.
func (w *storyWorld) call(c *storyClient, typ, payload string) routertest.Frame {
	w.send(c, typ, payload)
	return w.answerOf(c)
}

func (w *storyWorld) send(c *storyClient, typ, payload string) {
	c.calls++
	c.waiting = fmt.Sprintf("r%d", c.calls)
	c.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q%s},"payload":%s}`, typ, c.waiting, c.meta, payload))
}

func (w *storyWorld) answerOf(c *storyClient) routertest.Frame {
	for {
		if frame, ok := c.answers[c.waiting]; ok {
			return frame
		}
		w.read(c, c.Next())
	}
}

// read stores what a client has received. Publications with an offset must not be repeated, and have no
// gap without a notice.
func (w *storyWorld) read(c *storyClient, frame routertest.Frame) {
	if id := frame.Meta.CorrelationID; id != "" {
		c.answers[id] = frame
		w.notePositions(c, frame)
		return
	}
	var message struct {
		Meta struct {
			Topic  string
			Offset uint64
		}
		Payload struct {
			resumedTopic

			Text, Symbol string
			N            int
			ExpiresInMs  int
			Code         errors.Code
			Lost         *struct{ From, To uint64 }
			Joined, Left []router.Member
		}
	}
	require.NoError(w.t, json.Unmarshal([]byte(frame.Text), &message), frame.Text)
	meta, payload := message.Meta, message.Payload
	topic := shown(payload.Topic)
	switch frame.Type {
	case "BLOB", "QUOTE", "DELISTED":
		last, known := c.offsets[meta.Topic]
		if known && meta.Offset > 0 && (meta.Offset > last || frame.Type != "QUOTE") { // others are a part of the state
			require.Equal(w.t, last+1, meta.Offset, "%s: %s", w.where, frame.Text)
			c.offsets[meta.Topic] = meta.Offset
		}
		c.inbox = append(c.inbox, c.state.receive(frame.Type, payload.Symbol, cmp.Or(payload.Text, fmt.Sprint(payload.N))))
	case "$ws:subscribed", "$ws:position":
		w.position(c, payload.resumedTopic)
		if payload.Lost != nil {
			topic += fmt.Sprintf(":lost:%d-%d", payload.Lost.From, payload.Lost.To)
		}
		c.inbox = append(c.inbox, "+"+topic)
	case "$ws:unsubscribed":
		delete(c.offsets, payload.Topic)
		if payload.Error != nil {
			topic += ":" + string(payload.Error.Code)
		}
		c.inbox = append(c.inbox, "-"+topic)
	case "$ws:presence":
		c.inbox = append(append(c.inbox, signed("-", payload.Left...)...), signed("+", payload.Joined...)...)
	case "$ws:identity-expiring":
		c.inbox = append(c.inbox, fmt.Sprint("expiring:", payload.ExpiresInMs))
	case "ERROR", "RPC_ERROR":
		c.inbox = append(c.inbox, string(payload.Code))
	default:
		c.inbox = append(c.inbox, frame.Type)
	}
}

// shown returns the name of a topic in stories: that of the messages to a user is empty.
func shown(topic string) string { return cmp.Or(topic, "log") }

// notePositions notes what an answer says of topics.
func (w *storyWorld) notePositions(c *storyClient, frame routertest.Frame) {
	var payload struct {
		resumed
		resumedTopic

		State *int
	}
	if frame.Type != "$ws:subscribed" && frame.Type != "$ws:resumed" {
		return
	}
	require.NoError(w.t, json.Unmarshal(frame.Payload, &payload))
	for _, topic := range append(payload.Topics, payload.resumedTopic) {
		w.position(c, topic)
	}
	if payload.State != nil {
		c.state = storyState{}
	}
}

// position notes the position of a topic.
func (w *storyWorld) position(c *storyClient, at resumedTopic) {
	if at.Epoch == "" && at.Offset == 0 {
		return
	}
	c.offsets[at.Topic] = at.Offset
	if at.Topic == "" && at.Epoch != "" {
		c.log = at.Epoch
	}
}

// gets: NAME returns what has arrived since the last call: texts, "+TOPIC" and "-TOPIC", codes, types.
func (w *storyWorld) gets(args []string) (string, error) {
	c := w.client(args[0])
	w.readAll(c)
	got := strings.Join(c.inbox, " ")
	c.inbox = nil
	return got, nil
}

// texts: NAME returns how many texts have arrived since the last call.
func (w *storyWorld) texts(args []string) (string, error) {
	got, err := w.gets(args)
	return fmt.Sprint(len(strings.Fields(got))), err
}

func (w *storyWorld) readAll(c *storyClient) {
	for c.Pending() > 0 {
		w.read(c, c.Next())
	}
}

// answer: NAME returns the answer to the latest call.
func (w *storyWorld) answer(args []string) (string, error) {
	c := w.client(args[0])
	return w.result(c, w.answerOf(c))
}

// asks: STEP makes a call whose answer the step "answer" expects.
func (w *storyWorld) asks(args []string) (string, error) {
	w.noAnswer = true
	_, err := storySteps()[args[0]](w, args[1:])
	w.noAnswer = false
	return "", err
}

// waits: STEP makes a call that has no answer yet.
func (w *storyWorld) waits(args []string) (string, error) {
	c := w.client(args[1])
	_, err := w.asks(args)
	synctest.Wait()
	w.readAll(c)
	require.NotContains(w.t, c.answers, c.waiting, w.where)
	return "", err
}

// request makes a call, and returns its result.
func (w *storyWorld) request(c *storyClient, typ, payload string) (string, error) {
	w.send(c, typ, payload)
	if w.noAnswer {
		return "", nil
	}
	return w.result(c, w.answerOf(c))
}

// result returns the code of an error, or what an answer says of topics: "TOPIC@OFFSET" is recovered,
// "TOPIC!OFFSET" is not, and "TOPIC" has no history. The members follow.
func (w *storyWorld) result(c *storyClient, frame routertest.Frame) (string, error) {
	var payload struct {
		resumed
		resumedTopic

		Code    errors.Code
		Members []router.Member
	}
	require.NoError(w.t, json.Unmarshal(frame.Payload, &payload))
	switch frame.Type {
	case "RPC_ERROR":
		return string(payload.Code), errors.Errorf(payload.Code, "%s", frame.Text)
	case "$ws:resumed":
		c.token = payload.Session.Token
	case "$ws:subscribed":
		payload.Topics = []resumedTopic{payload.resumedTopic}
	default:
		return frame.Type, nil
	}
	var words []string
	for _, topic := range payload.Topics {
		name := shown(topic.Topic)
		switch {
		case topic.Error != nil:
			words = append(words, name+":"+string(topic.Error.Code))
		case topic.Recovered == nil:
			words = append(words, name)
		case *topic.Recovered:
			words = append(words, fmt.Sprint(name, "@", topic.Offset))
		default:
			words = append(words, fmt.Sprint(name, "!", topic.Offset))
		}
	}
	return strings.Join(append(words, names(payload.Members)...), " "), nil
}

// resume: NAME OLD TOPIC... presents the token of another client, and topics: "TOPIC@OFFSET+presence".
// "OLD~KIND" is a token that is not valid.
func (w *storyWorld) resume(args []string) (string, error) {
	name, _, _ := strings.Cut(args[1], "~")
	old := w.client(name)
	var topics []string
	for _, topic := range args[2:] {
		topics = append(topics, w.presented(old, topic))
	}
	return w.request(w.client(args[0]), "$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[%s]}`, w.tokenOf(args[1]), strings.Join(topics, ",")))
}

func (w *storyWorld) tokenOf(name string) string {
	name, kind, _ := strings.Cut(name, "~")
	token := w.client(name).token
	switch kind {
	case "guessed":
		return strings.Repeat("A", 26) + "." + strings.Repeat("A", 26)
	case "other-secret":
		return token[:27] + strings.Repeat("A", 26)
	case "malformed":
		return "a" + token[1:]
	case "longer":
		return token + "A"
	case "first":
		return w.client(name).first
	case "":
		return token
	}
	n, err := strconv.Atoi(kind) // its first bytes
	require.NoError(w.t, err, w.where)
	return token[:n]
}

// presented returns a topic of a resume or subscribe: "TOPIC@OFFSET+presence+positions+state+last=N",
// "TOPIC@EPOCH/OFFSET", "TOPIC@NAME/OFFSET". "log" has the messages to the user.
func (w *storyWorld) presented(c *storyClient, text string) string {
	words := strings.Split(text, "+")
	topic, at, positioned := strings.Cut(words[0], "@")
	if topic == "log" {
		topic = ""
	}
	object := fmt.Sprintf(`{"topic":%q`, topic)
	if positioned {
		epoch, offset, other := strings.Cut(at, "/")
		if !other {
			epoch, offset = w.epochOf(c, topic), at
		} else if w.clients[epoch] != nil {
			epoch = w.epochOf(w.clients[epoch], topic)
		}
		object += fmt.Sprintf(`,"epoch":%q,"offset":%s`, epoch, offset)
	}
	for _, flag := range words[1:] {
		name, value, hasValue := strings.Cut(flag, "=")
		if !hasValue {
			value = "true"
		}
		object += fmt.Sprintf(`,%q:%s`, name, value)
	}
	return object + "}"
}

// ack: NAME confirms the latest resume.
func (w *storyWorld) ack(args []string) (string, error) {
	c := w.client(args[0])
	c.SendText(fmt.Sprintf(`{"type":"$ws:ack","meta":{"correlationId":"r%d"}}`, c.calls))
	synctest.Wait()
	return "", nil
}

// closed: NAME returns the code with which a connection is closed.
func (w *storyWorld) closed(args []string) (string, error) {
	return fmt.Sprint(int(w.client(args[0]).Closed().Code)), nil
}

// reason: NAME returns the reason with which a connection is closed.
func (w *storyWorld) reason(args []string) (string, error) {
	return w.client(args[0]).Closed().Reason, nil
}

// says: NAME TEXT fails unless the latest answer contains a text.
func (w *storyWorld) says(args []string) (string, error) {
	require.Contains(w.t, w.answerOf(w.client(args[0])).Text, strings.Join(args[1:], " "), w.where)
	return "", nil
}
