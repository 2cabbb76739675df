package simtest

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/testscale"
)

// repeat simulates a plan several times, since the scheduler is not part of it, and fails with the problems of the first run that
// has some.
func repeat(t *testing.T, times int, p plan) {
	t.Helper()
	for range testscale.Pick((times+3)/4, times) {
		if problems := simulate(t, p); len(problems) > 0 {
			for _, problem := range problems {
				t.Error(problem)
			}
			return
		}
	}
}

// The plans below are what was left of those that have found faults.

// The first read of a node that follows a topic saw a publication whose publisher had no answer yet: both copies were
// dropped.
func TestScenario_FirstPublicationToANewTopic(t *testing.T) {
	repeat(t, 20, plan{
		Seed: 24, Mood: calm, Nodes: 4,
		Clients: []clientPlan{
			{User: "user1", CBOR: true, Pacing: true, SlowHandlers: true},
			{User: "user3", Resume: true, Pacing: true},
			{User: "user3", Resume: true, Fallback: true, Pacing: true, SlowHandlers: true},
		},
		Steps: []step{
			{Wait: 48476 * time.Millisecond, Do: "joinAndPublish", Client: 2, Node: 1, Topic: "join/new527"},
			{Do: "joinAndPublish", Client: 1, Node: 2, Topic: "join/new528"},
			{Do: "joinAndPublish", Client: 0, Node: 3, Topic: "join/new529"},
		},
	})
}

// A session that learned from the store that it had ended closed its connection with 4403, so that the client stopped for good.
func TestScenario_DisconnectUserClosesWithItsCode(t *testing.T) {
	repeat(t, 20, plan{
		Seed: 120, Mood: calm, Nodes: 4,
		Clients: []clientPlan{
			{User: "user2"},
			{User: "user1", Resume: true},
			{User: "user1", Resume: true, Fallback: true},
		},
		Steps: []step{
			{Wait: 24395 * time.Millisecond, Do: "disconnectUser", Client: 1, Node: 3},
			{Wait: 2 * time.Second, Do: "on", Client: 1},
			{Do: "on", Client: 2},
			{Wait: time.Second, Do: "cutOff", Node: 1, For: 13 * time.Second},
			{Do: "cutOff", Node: 2, For: 13 * time.Second},
			{Wait: 9 * time.Second, Do: "disconnectUser", Client: 1, Node: 3, N: 1},
		},
	})
}

// While a client moves to another connection because its node shuts down, it has two.
func TestScenario_MessageToAUserWhoMoves(t *testing.T) {
	steps := []step{
		{Wait: 4 * time.Second, Do: "call", For: 4 * time.Second},
		{Do: "call", Client: 1, For: 4 * time.Second},
		{Do: "call", Client: 2, For: 4 * time.Second},
		{Wait: 100 * time.Millisecond, Do: "restart", Node: 1, For: 9 * time.Millisecond},
	}
	for range 12 {
		steps = append(steps, step{Wait: 300 * time.Millisecond, Do: "sendToUser", Client: 1, Node: 2, N: 1})
	}
	for seed := range uint64(10) {
		repeat(t, 1, plan{Seed: seed, Mood: calm, Nodes: 3, Clients: []clientPlan{{User: "user1"}, {User: "user1"}, {User: "user1", Resume: true}}, Steps: steps})
	}
}

// Publications that wait for a slow handler were handled after Unsubscribe.
func TestScenario_UnsubscribeWhilePublicationsWait(t *testing.T) {
	repeat(t, 10, plan{
		Seed: 534, Mood: mixed, Nodes: 2,
		Clients: []clientPlan{{User: "user1", SlowHandlers: true}},
		Steps: []step{
			{Wait: time.Second, Do: "subscribe", Topic: "log/1"},
			{Wait: time.Second, Do: "burst", Node: 1, Topic: "log/1", N: 77},
			{Wait: 500 * time.Millisecond, Do: "unsubscribe"},
		},
	})
}

// A client that moved from a node that shuts down gave up its calls there when the node to which it had moved shut down, too.
func TestScenario_CallWhileTwoNodesShutDown(t *testing.T) {
	for seed := range uint64(30) {
		repeat(t, 1, plan{
			Seed: seed, Mood: calm, Nodes: 3,
			Clients: []clientPlan{{User: "user1"}, {User: "user2", Resume: true}, {User: "user3"}, {User: "user4", Resume: true}},
			Steps: []step{
				{Wait: 2 * time.Second, Do: "call", Client: 0, For: 4 * time.Second},
				{Do: "call", Client: 1, For: 4 * time.Second},
				{Do: "call", Client: 2, For: 3 * time.Second},
				{Do: "call", Client: 3, For: 3 * time.Second},
				{Wait: 50 * time.Millisecond, Do: "restartTwo", Node: 1, For: 300 * time.Millisecond},
			},
		})
	}
}

// A second subscription of a topic asked for the latest publications, of which the client had made one itself: the notice that says
// so moved the first subscription back, too.
func TestScenario_LatestPublicationsWithOneOfItsOwn(t *testing.T) {
	repeat(t, 3, plan{
		Seed: 388, Mood: calm, Nodes: 2,
		Clients: []clientPlan{{User: "user1"}, {User: "user2"}},
		Steps: []step{
			{Wait: 2 * time.Second, Do: "callAndPublishToOthers", Client: 1, Topic: "log/2", For: 97 * time.Millisecond},
			{Wait: 2 * time.Second, Do: "callAndPublishToOthers", Topic: "log/2", For: 49 * time.Millisecond},
			{Wait: 2 * time.Second, Do: "subscribeLast", Client: 1, Topic: "log/2", N: 8},
			{Wait: 2 * time.Second, Do: "subscribeLast", Client: 1, Topic: "log/2", N: 5},
		},
	})
}
