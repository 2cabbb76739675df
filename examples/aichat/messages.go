package main

import (
	"fmt"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// Messages from the page. The AI SDK has messages of its own; see package aisdk.
type (
	// Ask is answered when the run of the answer has begun. A page that sends it again with the
	// same ID gets the same run.
	Ask struct {
		Chat string `json:"chat"`
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	OpenChat struct {
		Chat string `json:"chat"`
	}
	GetBudget struct{}
)

// Messages from the server.
type (
	Asked struct {
		Run string `json:"run"`
	}
	// ChatOpened has the run whose answer is not among the messages, if there is one.
	ChatOpened struct {
		Messages []Message `json:"messages"`
		Run      string    `json:"run,omitempty"`
	}
	Budget struct {
		Limits []BudgetLimit `json:"limits"`
	}
	BudgetLimit struct {
		Name        string `json:"name"`
		Left        int64  `json:"left" contract:"safe"` // negative if more was used than there was
		Max         int64  `json:"max" contract:"safe"`
		ReturnsInMs int64  `json:"returnsInMs" contract:"safe"` // until all of it is back
	}
	// Message is a message of a conversation. It is published to the topic of the chat.
	Message struct {
		ID         string `json:"id"` // of an answer, that of its run
		Role       Role   `json:"role"`
		Text       string `json:"text"`
		ReplyTo    string `json:"replyTo,omitempty"`    // of an answer: the ID of the question
		Incomplete bool   `json:"incomplete,omitempty"` // the answer was stopped, or has failed
	}
)

// A Role is the author of a message.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

func (Ask) MessageType() string        { return "ASK" }
func (OpenChat) MessageType() string   { return "OPEN_CHAT" }
func (GetBudget) MessageType() string  { return "GET_BUDGET" }
func (Asked) MessageType() string      { return "ASKED" }
func (ChatOpened) MessageType() string { return "CHAT_OPENED" }
func (Budget) MessageType() string     { return "BUDGET" }
func (Message) MessageType() string    { return "MESSAGE" }

func (m Ask) Validate() error {
	return errors.Join(checkLength("chat", m.Chat, maxChatID), checkLength("id", m.ID, 64), checkLength("text", m.Text, maxQuestion))
}

func (m OpenChat) Validate() error { return checkLength("chat", m.Chat, maxChatID) }

const (
	maxChatID   = 64
	maxQuestion = 2000
)

// checkLength returns INVALID_ARGUMENT unless value has 1 to maxChars characters.
func checkLength(field, value string, maxChars int) error {
	if n := utf8.RuneCountInString(value); n < 1 || n > maxChars {
		return errors.InvalidField(field, fmt.Sprintf("must have 1 to %d characters", maxChars))
	}
	return nil
}
