package rules

import (
	"slices"
	"time"
)

// This file has the table of the protocol's section 5: why a connection is closed with a code, and what a client does
// then. It is part of docs/protocol.json, from which the section, the description of routers, and both clients follow,
// too; after a change, run
//
//	go test ./internal/rules -run Rules -update
//	go test ./internal/rules -update

// A Reaction is what a client does after a connection has ended.
type Reaction int

// The reactions. After all of them but Stop, a client connects again after [CloseRule.Delay].
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

// A CloseRule is a row of the table.
type CloseRule struct {
	Codes    []int // nil: those from 4000 to 4999 without a rule
	Cause    string
	Reaction Reaction
	Note     string // what a client should also know
	Unsent   bool   // no close frame has these codes
}

// CloseRuleOf returns the rule of a code. Codes that are not in the table have the rule of applications.
func CloseRuleOf(code int) CloseRule {
	for _, r := range CloseRules {
		if slices.Contains(r.Codes, code) {
			return r
		}
	}
	return CloseRules[len(CloseRules)-1]
}

// IsRejectionCode reports whether a code rejects a connection, and not what was sent over it: retryAfterMs null
// then says that no later connection is accepted either.
func IsRejectionCode(code int) bool { return code >= 4000 }

// Delay returns how long a client waits before an attempt: the delay that the server demands, which is 0 if it demands
// none, and in addition a backoff. attempt counts from 0, minBackoff is the upper bound of the first backoff, and random
// returns numbers from 0 to 1, without 1.
func (r CloseRule) Delay(demanded time.Duration, attempt int, minBackoff, maxBackoff time.Duration, random func() float64) time.Duration {
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
