package redis

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// The source of the scripts. Each begins with historyLineageLua. Those about topics go on with
// historyRecordLua and historyFirstLua, then historyOpenLua if they write or begin epochs, or
// historyPositionLua if they read one topic.
var (
	//go:embed history_lineage.lua
	historyLineageLua string
	//go:embed history_record.lua
	historyRecordLua string
	//go:embed history_first.lua
	historyFirstLua string
	//go:embed history_open.lua
	historyOpenLua string
	//go:embed history_append.lua
	historyAppendLua string
	//go:embed history_change.lua
	historyChangeLua string
	//go:embed history_position.lua
	historyPositionLua string
	//go:embed history_read.lua
	historyReadLua string
	//go:embed history_batch.lua
	historyBatchLua string
	//go:embed history_state.lua
	historyStateLua string
	//go:embed history_confirm.lua
	historyConfirmLua string
)

// historyScripts are the scripts of a node. If memory is full, those that store publications or
// values are rejected before they begin, and the others run. A replica runs none of them.
type historyScripts struct{ append, change, read, batch, state, value, storeValue *redisclient.Script }

func newHistoryScripts() historyScripts {
	common := historyLineageLua + historyRecordLua + historyFirstLua
	return historyScripts{
		append: newGrowingScript(common + historyOpenLua + historyAppendLua),
		change: redisclient.NewScript(common + historyOpenLua + historyChangeLua),
		read:   redisclient.NewScript(common + historyPositionLua + historyReadLua),
		batch:  redisclient.NewScript(common + historyOpenLua + historyBatchLua),
		state:  redisclient.NewScript(common + historyPositionLua + historyStateLua),

		value:      redisclient.NewScript(valueLua), // loads and deletes
		storeValue: newGrowingScript(valueLua),
	}
}

// newGrowingScript returns a script that needs free memory.
func newGrowingScript(lua string) *redisclient.Script {
	return &redisclient.Script{Forms: redisclient.NewForms("#!lua", lua)}
}

// newEpoch returns a random epoch of 80 bits.
func newEpoch() string { return rand.Text()[:16] }

// Lifetimes in Redis. A stream that is not used is removed after its publications have expired, and
// the metadata a day after that. Publications extend them rarely, when a tenth of the stream's
// lifetime has passed. Reads extend only that of the metadata, when less than a day remains: at most
// once in lifetimeMargin. While there is a stream, more than a day remains.
const (
	metadataAge    = 24 * time.Hour
	maxAge         = 100 * 365 * 24 * time.Hour // more would overflow
	lifetimeMargin = time.Hour
)

func ageOf(r broker.Retention) time.Duration {
	if r.Age <= 0 {
		return broker.DefaultAge
	}
	return min(r.Age, maxAge)
}

// lifetimes returns those of the stream and of the metadata of a topic.
func lifetimes(r broker.Retention) (stream, metadata int64) {
	age := ageOf(r)
	stream = (age + age/4).Milliseconds() + 1000
	return stream, stream + (metadataAge + lifetimeMargin).Milliseconds()
}

// A frame is a publication as it is stored and published: its epoch, its offset, the time in
// milliseconds, and its text. The text is the length of the state key, negative if that is removed,
// the state key and the packet. A space ends each number and the epoch.

// frameText returns the part of a frame that the publisher knows.
func frameText(a *broker.Append) []byte {
	length := len(a.StateKey)
	if a.Removed {
		length = -length
	}
	b := make([]byte, 0, 8+len(a.StateKey)+len(a.Packet))
	b = append(strconv.AppendInt(b, int64(length), 10), ' ')
	b = append(b, a.StateKey...)
	return append(b, a.Packet...)
}

// parseFrame returns false if s is not a frame.
func parseFrame(s string) (p broker.Publication, ok bool) {
	epoch, s, _ := strings.Cut(s, " ")
	offset, s, _ := strings.Cut(s, " ")
	at, s, _ := strings.Cut(s, " ")
	length, s, ok := strings.Cut(s, " ")
	if !ok {
		return p, false
	}
	var errs [3]error
	var millis int64
	var keyLength int
	p.Position.Epoch = epoch
	p.Position.Offset, errs[0] = strconv.ParseUint(offset, 10, 64)
	millis, errs[1] = strconv.ParseInt(at, 10, 64)
	keyLength, errs[2] = strconv.Atoi(length)
	if keyLength < 0 {
		p.Removed, keyLength = true, -keyLength
	}
	if errors.Join(errs[:]...) != nil || keyLength > len(s) {
		return p, false
	}
	p.At, p.StateKey, p.Packet = time.UnixMilli(millis), s[:keyLength], []byte(s[keyLength:])
	return p, true
}

// parseFrames returns an error if one of them is not a frame.
func parseFrames(frames any) ([]broker.Publication, error) {
	list, ok := frames.([]any)
	publications := make([]broker.Publication, len(list))
	for i, frame := range list {
		var s string
		if s, ok = frame.(string); ok {
			publications[i], ok = parseFrame(s)
		}
		if !ok {
			break
		}
	}
	if !ok {
		return nil, errors.Errorf(errors.Internal, "a stored publication of a history cannot be decoded")
	}
	return publications, nil
}

func parsePosition(epoch, offset any) (p broker.Position, ok bool) {
	p.Epoch, ok = epoch.(string)
	text, isString := offset.(string)
	var err error
	p.Offset, err = strconv.ParseUint(text, 10, 64)
	return p, ok && isString && err == nil
}

// storeError converts an error of a script call that stores something, a publication for example: its
// code says whether that may have been stored.
func storeError(what string, err error) error {
	if isOutOfMemory(err) {
		return &errors.Error{Code: errors.ResourceExhausted, Message: "the " + what + " was not stored, because the memory of Redis is full", Err: err}
	}
	reply, isReply := errors.AsType[goredis.Error](err)
	if isUnsent(err) || isReply && isRejection(reply.Error()) {
		return &errors.Error{Code: errors.Unavailable, Message: "the " + what + " was not stored", Err: err}
	}
	return unknownOutcome(what, err)
}

func unknownOutcome(what string, err error) error {
	return &errors.Error{Code: errors.OutcomeUnknown, Message: "the " + what + " may have been stored", Err: err}
}

// isUnsent reports whether an error of the client means that nothing was sent.
func isUnsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" ||
		errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed)
}

// isRejection reports whether a server rejects a script with this error before it writes.
func isRejection(reply string) bool {
	word, _, _ := strings.Cut(reply, " ")
	switch word {
	case "READONLY", "MOVED", "ASK", "TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "CROSSSLOT",
		"NOREPLICAS", "MISCONF", "BUSY", "NOSCRIPT", "NOAUTH", "NOPERM", "WRONGPASS", "NOLINEAGE":
		return true
	}
	return false
}

func isOutOfMemory(err error) bool { return goredis.HasErrorPrefix(err, "OOM") }

// parseAppended returns the result of one publication.
func parseAppended(a *broker.Append, epoch string, reply any) (broker.Appended, error) {
	switch r := reply.(type) {
	case int64:
		return broker.Appended{Position: broker.Position{Epoch: epoch, Offset: uint64(r)}}, nil //nolint:gosec // never negative
	case string:
		if failure, ok := strings.CutPrefix(r, "!"); ok {
			return broker.Appended{}, itemError(a, failure)
		}
		epoch, offset, _ := strings.Cut(r, " ")
		if position, ok := parsePosition(epoch, offset); ok {
			return broker.Appended{Position: position, Duplicate: true}, nil
		}
	}
	return broker.Appended{}, unknownOutcome("publication", fmt.Errorf("the script returned %v", reply))
}

// itemError returns the error of a publication that the script has not stored, unlike others.
func itemError(a *broker.Append, failure string) error {
	if failure == "CLOSED" {
		return errors.Errorf(errors.FailedPrecondition, "the publication was not stored: the topic %q is closed", a.Topic)
	}
	if fence, ok := strings.CutPrefix(failure, "FENCED "); ok {
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q has the fence %s, and the publication %d", a.Topic, fence, a.Fence)
	}
	if epoch, ok := strings.CutPrefix(failure, "OTHEREPOCH "); ok {
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q is in the epoch %q, and the publication requires %q", a.Topic, epoch, a.Epoch)
	}
	code := errors.Internal
	switch {
	case strings.HasPrefix(failure, "OOM"):
		code = errors.ResourceExhausted
	case isRejection(failure):
		code = errors.Unavailable
	}
	return errors.Errorf(code, "the publication was not stored: %s", failure)
}
