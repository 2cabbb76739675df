package main

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// Messages from clients.
type (
	JoinRoom struct {
		Room string `json:"room"`
	}
	LeaveRoom struct {
		Room string `json:"room"`
	}
	Say struct {
		Room string `json:"room"`
		Text string `json:"text"`
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
	RoomJoined struct {
		Room    string   `json:"room"`
		Users   []string `json:"users"`
		History []Said   `json:"history"`
	}
	Said struct {
		Room string    `json:"room"`
		User string    `json:"user"`
		Text string    `json:"text"`
		At   time.Time `json:"at"`
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
	// RoomStale says that messages of the room were lost: the client should send JoinRoom again.
	RoomStale struct {
		Room string `json:"room"`
	}
	// SlowDown replaces the error of a rejected message if -on-exceeded is custom.
	SlowDown struct {
		RejectedType string `json:"refused"`
		RetryAfterMs int64  `json:"retryAfterMs"`
	}
)

func (JoinRoom) MessageType() string      { return "JOIN_ROOM" }
func (LeaveRoom) MessageType() string     { return "LEAVE_ROOM" }
func (Say) MessageType() string           { return "SAY" }
func (Who) MessageType() string           { return "WHO" }
func (SearchHistory) MessageType() string { return "SEARCH_HISTORY" }
func (RoomJoined) MessageType() string    { return "ROOM_JOINED" }
func (Said) MessageType() string          { return "SAID" }
func (Users) MessageType() string         { return "USERS" }
func (HistoryFound) MessageType() string  { return "HISTORY_FOUND" }
func (UserJoined) MessageType() string    { return "USER_JOINED" }
func (UserLeft) MessageType() string      { return "USER_LEFT" }
func (RoomStale) MessageType() string     { return "ROOM_STALE" }
func (SlowDown) MessageType() string      { return "SLOW_DOWN" }

func (m JoinRoom) Validate() error  { return checkLength("room", m.Room, 64) }
func (m LeaveRoom) Validate() error { return checkLength("room", m.Room, 64) }
func (m Who) Validate() error       { return checkLength("room", m.Room, 64) }

func (m Say) Validate() error {
	return errors.Join(checkLength("room", m.Room, 64), checkLength("text", m.Text, 500))
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
