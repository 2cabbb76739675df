//go:build unix

package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

func at(epoch string, offset uint64) broker.Position {
	return broker.Position{Epoch: epoch, Offset: offset}
}

func storyOf(number int) storyID { return storyID{"p", number} }

// answer is a subscription that continues at a position.
func answer(since, p broker.Position) step {
	return step{kind: subscribed, since: since, position: p, recovered: true}
}

// deliver is a publication.
func deliver(offset uint64, number int) step {
	return step{kind: delivered, position: at("", offset), story: storyOf(number)}
}

// handmade is a record without a violation: three stories in epoch E, of which two clients receive
// each. One of them returns.
func handmade() *topicRecord {
	r := newTopicRecord("t", 100)
	for number := range 3 {
		id := storyOf(number + 1)
		r.begin(id, int64(10*number))
		r.end(id, stored, at("E", uint64(number+1)))
		r.final = append(r.final, entry{at("E", uint64(number+1)), id})
	}
	r.top = at("E", 3)
	r.chains["a"] = []step{answer(at("", 0), at("E", 0)), deliver(1, 1), deliver(2, 2), deliver(3, 3)}
	r.chains["b"] = []step{answer(at("", 0), at("E", 1)), deliver(2, 2), answer(at("E", 2), at("E", 2)), deliver(3, 3)}
	return r
}

// failedOver is a record of a failover that has lost the story 3 at (E,3), which was published again.
func failedOver() *topicRecord {
	r := handmade()
	end := at("E", 2)
	r.begin(storyOf(4), 30)
	r.end(storyOf(4), stored, at("F", 3))
	r.begin(storyOf(3), 40)
	r.end(storyOf(3), unknown, broker.Position{})
	r.final = []entry{{at("E", 1), storyOf(1)}, {at("E", 2), storyOf(2)}, {at("F", 3), storyOf(4)}, {at("F", 4), storyOf(3)}}
	r.top = at("F", 4)
	r.chains["a"] = append(r.chains["a"], step{kind: moved, position: at("F", 2), ended: &end}, deliver(3, 4), deliver(4, 3))
	r.chains["b"] = append(r.chains["b"], step{kind: subscribed, since: at("E", 3), position: at("F", 2), recovered: true, ended: &end}, deliver(3, 4), deliver(4, 3))
	return r
}

// trimmed is a record in which a client learns that the offsets 2 and 3 are lost.
func trimmedHistory() *topicRecord {
	r := newTopicRecord("t", 1)
	for number := range 4 {
		r.begin(storyOf(number+1), int64(10*number))
		r.end(storyOf(number+1), stored, at("E", uint64(number+1)))
	}
	r.final = []entry{{at("E", 4), storyOf(4)}}
	r.top = at("E", 4)
	r.chains["a"] = []step{answer(at("", 0), at("E", 0)), deliver(1, 1), {kind: moved, at: 50, position: at("E", 3), lost: &offsets{2, 3}}, deliver(4, 4)}
	return r
}

func TestCheckTopic_AcceptsCorrectRecords(t *testing.T) {
	v := checkTopic(handmade())
	assert.Empty(t, v.violations)
	assert.Equal(t, counts{Stored: 3, Delivered: 5, Returns: 1, Recovered: 1}, v.counts)

	v = checkTopic(failedOver())
	assert.Empty(t, v.violations)
	assert.Equal(t, counts{Stored: 4, Unknown: 1, Delivered: 9, Returns: 2, Recovered: 2, Ended: 2, Dead: 1}, v.counts)

	v = checkTopic(trimmedHistory())
	assert.Empty(t, v.violations)
	assert.Equal(t, counts{Stored: 4, Delivered: 2, Losses: 1, Lost: 2}, v.counts)

	r := failedOver() // a client that was behind the end of the epoch is not recovered
	r.chains["b"] = append(r.chains["b"][:4:4], step{kind: subscribed, since: at("E", 3), position: at("F", 3)}, deliver(4, 3))
	assert.Empty(t, checkTopic(r).violations)

	r = failedOver() // the epoch F is lost as a whole: G follows E, too
	r.chains["a"] = append(r.chains["a"], step{kind: moved, reset: true, position: at("G", 3)})
	r.chains["b"] = append(r.chains["b"], step{kind: moved, reset: true, position: at("G", 2)}, deliver(3, 4))
	r.begin(storyOf(4), 50)
	r.end(storyOf(4), stored, at("G", 3))
	r.final = []entry{{at("E", 1), storyOf(1)}, {at("E", 2), storyOf(2)}, {at("G", 3), storyOf(4)}}
	r.top = at("G", 3)
	assert.Empty(t, checkTopic(r).violations)

	r = handmade() // all is lost, without a trace
	r.chains["a"] = append(r.chains["a"], step{kind: moved, reset: true, position: at("G", 0)}, deliver(1, 3))
	r.chains["b"] = append(r.chains["b"], step{kind: subscribed, since: at("E", 3), position: at("G", 1)})
	r.begin(storyOf(3), 50)
	r.end(storyOf(3), stored, at("G", 1))
	r.final, r.top = []entry{{at("G", 1), storyOf(3)}}, at("G", 1)
	v = checkTopic(r)
	assert.Empty(t, v.violations)
	assert.Equal(t, counts{Stored: 4, Delivered: 6, Returns: 2, Recovered: 1, Resets: 2, MostResets: 1}, v.counts)
}

func TestCheckTopic_CountsFalseNoticesOfEndedEpochs(t *testing.T) {
	r := handmade()
	end := at("E", 3)
	r.chains["a"] = append(r.chains["a"], step{kind: moved, position: at("F", 3), ended: &end})
	r.top = at("F", 3)
	v := checkTopic(r)
	assert.Empty(t, v.violations)
	assert.Equal(t, 1, v.counts.FalseEnded)
}

// TestCheckTopic_FindsEveryViolation breaks one thing in a correct record at a time.
func TestCheckTopic_FindsEveryViolation(t *testing.T) {
	end := at("E", 2)
	for name, c := range map[string]struct {
		invariant string
		record    func() *topicRecord
		spoil     func(*topicRecord)
	}{
		"two stories at a position":        {onePayload, handmade, func(r *topicRecord) { r.chains["a"][2].story = storyOf(3) }},
		"acknowledged position differs":    {onePayload, handmade, func(r *topicRecord) { r.attempts[storyOf(3)][0].position = at("E", 2) }},
		"history differs":                  {onePayload, handmade, func(r *topicRecord) { r.final[0].story = storyOf(2) }},
		"positions of a lost epoch reused": {onePayload, failedOver, func(r *topicRecord) { r.attempts[storyOf(4)][0].position = at("E", 3) }},
		"acknowledged story not delivered": {nothingMissed, handmade, func(r *topicRecord) { r.chains["a"][2].story = storyOf(9) }},
		"delivered twice":                  {onceEach, handmade, func(r *topicRecord) { r.chains["b"] = append(r.chains["b"], deliver(3, 3)) }},
		"delivered again after a return":   {onceEach, handmade, func(r *topicRecord) { r.chains["b"][2].position = at("E", 1) }},
		"delivered again after a reset": {onceEach, handmade, func(r *topicRecord) {
			r.chains["a"] = append(r.chains["a"], step{kind: moved, reset: true, position: at("E", 2)}, deliver(3, 3))
		}},
		"delivered again after an epoch": {onceEach, failedOver, func(r *topicRecord) { r.chains["a"][4].position.Offset = 1; r.chains["a"][5] = deliver(2, 2) }},
		"offset decreases":               {onceEach, handmade, func(r *topicRecord) { r.chains["a"][3].position.Offset = 1 }},
		"offset skipped":                 {noGap, handmade, func(r *topicRecord) { r.chains["a"] = append(r.chains["a"][:2:2], deliver(3, 3)) }},
		"return skips":                   {noGap, handmade, func(r *topicRecord) { r.chains["b"] = append(r.chains["b"][:2:2], answer(at("E", 2), at("E", 3))) }},
		"moved without a reason":         {noGap, handmade, func(r *topicRecord) { r.chains["a"][2] = step{kind: moved, position: at("E", 3)} }},
		"loss begins too late":           {noGap, trimmedHistory, func(r *topicRecord) { r.chains["a"][2].lost = &offsets{3, 3} }},
		"orders differ":                  {oneOrder, handmade, func(r *topicRecord) { r.chains["a"][2].story, r.chains["a"][3].story = storyOf(3), storyOf(2) }},
		"publisher's order":              {oneOrder, failedOver, func(r *topicRecord) { r.attempts[storyOf(4)][0].position = at("E", 1) }},
		"never sent":                     {onlySent, handmade, func(r *topicRecord) { delete(r.attempts, storyOf(2)) }},
		"not stored, but delivered":      {onlySent, handmade, func(r *topicRecord) { r.attempts[storyOf(2)] = []attempt{{outcome: notStored}} }},
		"incomplete":                     {onlySent, handmade, func(r *topicRecord) { r.chains["a"][1].corrupt = true }},
		"stored twice":                   {storedOnce, handmade, func(r *topicRecord) { r.final = append(r.final, entry{at("E", 4), storyOf(3)}) }},
		"acknowledged twice":             {storedOnce, failedOver, func(r *topicRecord) { r.begin(storyOf(4), 60); r.end(storyOf(4), stored, at("F", 5)) }},
		"loss of what was delivered":     {exactNotices, trimmedHistory, func(r *topicRecord) { r.chains["a"][2].lost = &offsets{1, 3} }},
		"loss of what the history has":   {exactNotices, trimmedHistory, func(r *topicRecord) { r.final = append([]entry{{at("E", 3), storyOf(3)}}, r.final...) }},
		"loss before it was trimmed":     {exactNotices, trimmedHistory, func(r *topicRecord) { r.chains["a"][2].at = 20 }},
		"end of another epoch": {exactNotices, handmade, func(r *topicRecord) {
			r.chains["a"] = append(r.chains["a"], step{kind: moved, position: at("G", 2), ended: &broker.Position{Epoch: "F", Offset: 2}})
		}},
		"an epoch with two ends": {exactNotices, failedOver, func(r *topicRecord) { r.chains["a"][4].ended = &broker.Position{Epoch: "E", Offset: 1} }},
		"end before what the history has": {noGap, handmade, func(r *topicRecord) {
			r.chains["a"] = append(r.chains["a"], step{kind: moved, position: at("F", 3), ended: &end})
		}},
		"end of what the history has": {exactNotices, handmade, func(r *topicRecord) {
			r.chains["a"] = append(r.chains["a"], step{kind: moved, position: at("F", 2), ended: &end})
		}},
		"client behind at the end": {liveAgain, handmade, func(r *topicRecord) { r.top = at("E", 4) }},
		"client late":              {liveAgain, handmade, func(r *topicRecord) { r.chains["a"][3].at = liveFactor*int64(liveWithin) + 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.record()
			c.spoil(r)
			assert.Contains(t, checkTopic(r).violations, c.invariant)
		})
	}
}

func TestSamePeople(t *testing.T) {
	clients := []string{"b", "a"}
	assert.True(t, samePeople("a,b", clients))
	assert.False(t, samePeople("a", clients), "a client is missing")
	assert.False(t, samePeople("a,b,b", clients), "a connection that is gone")
}

func TestKeysWithoutExpiry_FindsThem(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	assert.NoError(t, client.Set(t.Context(), "expires", 1, time.Hour).Err())
	r := &recoveryRun{t: t}
	assert.Empty(t, r.keysWithoutExpiry(server))
	assert.NoError(t, client.Set(t.Context(), "stays", 1, 0).Err())
	assert.Equal(t, []string{"stays"}, r.keysWithoutExpiry(server))
}
