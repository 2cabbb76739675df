// Package closecodes has the table of the protocol's section 5: why a connection is closed with a code, and
// what a client does then. The section, the description of routers, and both clients follow from it;
// after a change, run
//
//	go test ./internal/closecodes -closecodes.update
package closecodes

import (
	"slices"
	"time"
)

// A Reaction is what a client does after a connection has ended.
type Reaction int

// The reactions. After all of them but Stop, a client connects again after [Rule.Delay].
const (
	Reconnect    Reaction = iota
	CorrectOnce           // the client stops if the next connection ends like this, too
	Authenticate          // the same, with other credentials
	Return                // from a restart
	ReturnLater           // to an overloaded server
	Stop
)

// The delays of clients.
const (
	LeastDelay   = 100 * time.Millisecond
	MinBackoff   = 500 * time.Millisecond // the upper bound of the first backoff
	MaxBackoff   = 20 * time.Second
	BusyBackoff  = 5 * time.Second // the upper bound of the first backoff after ReturnLater
	ReturnSpread = 10 * time.Second
	HealthyAfter = 5 * time.Second // a connection that was open for so long ends the backoff
)

// A Rule is a row of the table.
type Rule struct {
	Codes    []int // nil: those from 4000 to 4999 without a rule
	Cause    string
	Reaction Reaction
	Note     string // what a client should also know
	Unsent   bool   // no close frame has these codes
}

// Rules is the table.
//
//nolint:gochecknoglobals // never changed
var Rules = []Rule{
	{Codes: []int{1000, 1001}, Cause: "the application, or the client itself, has closed it", Note: "unless it has closed the connection itself"},
	{Codes: []int{1005, 1006}, Cause: "a close frame without a code, or no close frame: the network, a proxy, or a rejected handshake", Unsent: true},
	{Codes: []int{1002, 1003, 1007}, Cause: "the client violated RFC 6455, or sent a text message or a close reason that was not valid UTF-8", Reaction: CorrectOnce},
	{Codes: []int{1008}, Cause: "a message took too long to arrive, or there were too many control frames or frames without data"},
	{Codes: []int{1009}, Cause: "a message was above the read limit, or above the message limit if the server is configured to close", Note: "and not send the message again"},
	{Codes: []int{1011}, Cause: "the server failed to open the connection"},
	{Codes: []int{1012}, Cause: "the server restarts", Reaction: Return},
	{Codes: []int{1013}, Cause: "the client read too slowly, or exceeded another limit and the server is configured to close, or it is unknown whether the user may still be connected", Reaction: ReturnLater},
	{Codes: []int{4401}, Cause: "the credentials are missing, expired or invalid (UNAUTHENTICATED)", Reaction: Authenticate},
	{Codes: []int{4403}, Cause: "the identity lacks the permission, or the page is of another origin (PERMISSION_DENIED)", Reaction: Stop},
	{Codes: []int{4409}, Cause: "another connection has resumed the session (section 12)", Reaction: Stop, Note: "the other connection has taken over"},
	{Codes: []int{4429}, Cause: "a limit was exceeded, for example too many connections (RESOURCE_EXHAUSTED)", Reaction: ReturnLater},
	{Codes: []int{4503}, Cause: "the server is shutting down, or cannot reach something that it depends on (UNAVAILABLE)", Reaction: Return},
	{Codes: []int{4400, 4500, 4501}, Cause: "any other error of the status 400, 500 or 501 in section 6"},
	{Cause: "defined by the application", Note: "unless the application has said that the code is final"},
}

// Of returns the rule of a code. Codes that are not in the table have the rule of applications.
func Of(code int) Rule {
	for _, r := range Rules {
		if slices.Contains(r.Codes, code) {
			return r
		}
	}
	return Rules[len(Rules)-1]
}

// IsRejection reports whether a code rejects a connection, and not what was sent over it: retryAfterMs null
// then says that no later connection is accepted either.
func IsRejection(code int) bool { return code >= 4000 }

// Delay returns how long a client waits before an attempt: the delay that the server demands, which is 0 if it demands
// none, and in addition a backoff. attempt counts from 0, minBackoff is the upper bound of the first backoff, and random
// returns numbers from 0 to 1, without 1.
func (r Rule) Delay(demanded time.Duration, attempt int, minBackoff, maxBackoff time.Duration, random func() float64) time.Duration {
	switch {
	case demanded > 0:
	case r.Reaction == Return && attempt == 0:
		demanded = part(ReturnSpread, random)
	case r.Reaction == ReturnLater:
		minBackoff = max(minBackoff, BusyBackoff)
	}
	upper := maxBackoff
	if attempt < 20 {
		upper = min(upper, minBackoff<<attempt)
	}
	return LeastDelay + demanded + part(upper, random)
}

func part(d time.Duration, random func() float64) time.Duration {
	return time.Duration(float64(d) * random())
}
