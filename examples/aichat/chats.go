package main

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A chat is a conversation of a user. Its topics contain the user, so that another user who names
// the same chat finds nothing.
type chat struct{ user, id string }

const (
	answerPattern   = "answer/{user}/{chat...}"
	messagesPattern = "messages/{user}/{chat...}"
)

// answers is the topic of its runs.
func (c chat) answers() string { return "answer/" + c.user + "/" + c.id }

// messages is the topic whose history is the conversation.
func (c chat) messages() string { return "messages/" + c.user + "/" + c.id }

// maxMessages is how many messages of a chat are kept: each question and each answer is two of them
// at most.
const maxMessages = 500

// storeTimeout bounds how long a message of a conversation takes to be stored.
const storeTimeout = 5 * time.Second

// chats stores conversations: in the histories of topics, which are in memory or in Redis, and
// whose subscribers see every message on all nodes. An application with a database stores them
// there.
type chats struct{ router *router.Router }

// newChats declares the topics of conversations.
func newChats(r *router.Router) *chats {
	router.Topic(r, messagesPattern, &router.TopicOptions{
		Authorize: func(ctx *router.Context, topic router.TopicMatch) error {
			if topic.Value("user") != ctx.Identity().UserID {
				return errors.Errorf(errors.PermissionDenied, "the chat is of another user")
			}
			return nil
		},
		History:  router.History{Messages: maxMessages, Age: 7 * 24 * time.Hour, Bytes: 2 << 20},
		Messages: []router.Message{Message{}},
	})
	return &chats{r}
}

// save adds a message to a conversation. Repeated with the same key, it adds one.
func (cs *chats) save(ctx context.Context, c chat, m Message, key string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return cs.router.Publish(c.messages(), m, router.IdempotencyKey(key), router.Stored(ctx, nil))
}

// load returns a conversation.
func (cs *chats) load(ctx context.Context, c chat) ([]Message, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	stored, _, err := cs.router.ReadHistory(ctx, c.messages(), broker.Query{Limit: maxMessages, Backward: true})
	if err != nil {
		return nil, err
	}
	messages := []Message{}
	for _, s := range stored {
		var m Message
		if err := s.Decode(&m); err != nil {
			return nil, err
		}
		messages = add(messages, m)
	}
	return messages, nil
}

// add adds a message to a conversation. A question that is asked again replaces the one with its ID
// and what follows it. An answer counts only behind its question: a node that was paused may save
// it when the conversation has gone on. The page does the same.
func add(messages []Message, m Message) []Message {
	if m.Role == RoleUser {
		if i := slices.IndexFunc(messages, func(other Message) bool { return other.ID == m.ID }); i >= 0 {
			messages = messages[:i]
		}
		return append(messages, m)
	}
	if n := len(messages); n == 0 || messages[n-1].ID != m.ReplyTo {
		return messages
	}
	return append(messages, m)
}
