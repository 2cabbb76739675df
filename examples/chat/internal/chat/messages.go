package chat

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// Messages from clients.
type (
	// JoinRoom has a position if the client returns: it has received the messages up to there.
	JoinRoom struct {
		Room string `json:"room"`
		Position
	}
	LeaveRoom struct {
		Room string `json:"room"`
	}
	// Say is answered when the message is stored. It may have an ID that the client makes up. A
	// message that is sent again with its ID is published once.
	Say struct {
		Room string `json:"room"`
		Text string `json:"text"`
		ID   string `json:"id,omitempty"`
	}
	Who struct {
		Room string `json:"room"`
	}
	SearchHistory struct {
		Room  string `json:"room"`
		Query string `json:"query"`
	}
)

// Messages from the server.
type (
	// RoomJoined has the position after which every message follows. If the client has missed
	// nothing but what follows, it has no History.
	RoomJoined struct {
		Room  string   `json:"room"`
		Users []string `json:"users"`
		Position
		History []Said `json:"history,omitempty"` // the latest messages up to the position
		Lost    bool   `json:"lost,omitempty"`    // others may be missing after the client's position
	}
	Said struct {
		Room string    `json:"room"`
		User string    `json:"user"`
		Text string    `json:"text"`
		At   time.Time `json:"at"`
		ID   string    `json:"id"` // of Say, or made up
	}
	// Stored is the answer to Say. The publication may arrive before or after it.
	Stored struct {
		Room string `json:"room"`
		ID   string `json:"id"` // of Said
	}
	Users struct {
		Room  string   `json:"room"`
		Users []string `json:"users"`
	}
	HistoryFound struct {
		Room    string `json:"room"`
		Matches []Said `json:"matches"`
	}
	UserJoined struct {
		Room string `json:"room"`
		User string `json:"user"`
	}
	UserLeft struct {
		Room string `json:"room"`
		User string `json:"user"`
	}
	// SlowDown replaces the error of a rejected message if -on-exceeded is custom.
	SlowDown struct {
		RejectedType string `json:"refused"`
		RetryAfterMs int64  `json:"retryAfterMs" contract:"safe"`
	}
)

// A Position is a place among the messages of a room. It has the fields of a broker.Position.
type Position struct {
	Epoch  string `json:"epoch,omitempty"`
	Offset uint64 `json:"offset,omitempty" contract:"safe"`
}

func (JoinRoom) MessageType() string      { return "JOIN_ROOM" }
func (LeaveRoom) MessageType() string     { return "LEAVE_ROOM" }
func (Say) MessageType() string           { return "SAY" }
func (Who) MessageType() string           { return "WHO" }
func (SearchHistory) MessageType() string { return "SEARCH_HISTORY" }
func (RoomJoined) MessageType() string    { return "ROOM_JOINED" }
func (Said) MessageType() string          { return "SAID" }
func (Stored) MessageType() string        { return "STORED" }
func (Users) MessageType() string         { return "USERS" }
func (HistoryFound) MessageType() string  { return "HISTORY_FOUND" }
func (UserJoined) MessageType() string    { return "USER_JOINED" }
func (UserLeft) MessageType() string      { return "USER_LEFT" }
func (SlowDown) MessageType() string      { return "SLOW_DOWN" }

func (m JoinRoom) Validate() error  { return checkLength("room", m.Room, 64) }
func (m LeaveRoom) Validate() error { return checkLength("room", m.Room, 64) }
func (m Who) Validate() error       { return checkLength("room", m.Room, 64) }

func (m Say) Validate() error {
	err := errors.Join(checkLength("room", m.Room, 64), checkLength("text", m.Text, 500))
	if m.ID != "" {
		err = errors.Join(err, checkLength("id", m.ID, 64))
	}
	return err
}

func (m SearchHistory) Validate() error {
	return errors.Join(checkLength("room", m.Room, 64), checkLength("query", m.Query, 100))
}

// checkLength returns INVALID_ARGUMENT unless value has 1 to maxChars characters.
func checkLength(field, value string, maxChars int) error {
	if n := utf8.RuneCountInString(value); n < 1 || n > maxChars {
		return errors.InvalidField(field, fmt.Sprintf("must have 1 to %d characters", maxChars))
	}
	return nil
}
