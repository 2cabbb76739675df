package durablestreams

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
)

// An offset is a place in a stream: before the item with a number of a run, or after a position of a topic.
// Its text sorts like its numbers.
type offset struct {
	number uint64 // of an item, or the Offset of a position
	id     string // of a run, or the epoch of a position
}

func (o offset) String() string { return fmt.Sprintf("%016d_%s", o.number, o.id) }

// offsetSyntax is what String returns. A number is below 1<<53.
var offsetSyntax = regexp.MustCompile(`^([0-9]{16})_([0-9A-Za-z_-]{1,64})$`)

func parseOffset(text string) (o offset, ok bool) {
	parts := offsetSyntax.FindStringSubmatch(text)
	if parts == nil {
		return o, false
	}
	number, err := strconv.ParseUint(parts[1], 10, 53)
	return offset{number, parts[2]}, err == nil
}

// A place is where a reader begins: at the first message that is stored, at the end, or at an offset.
type place struct {
	end bool
	at  offset // the beginning if it is the zero offset
}

// The values of the parameter live.
const (
	catchUp  = ""
	longPoll = "long-poll"
	sse      = "sse"
)

// A query is what a request asks for.
type query struct {
	from   place
	live   string
	cursor uint64 // 0 if there is none
	run    string // the ID of a run; the latest one if ""
}

// parseQuery returns what a query asks for, or what is wrong with it.
func parseQuery(values url.Values) (q query, problem string) {
	for _, name := range []string{"offset", "live", "cursor", "run"} {
		if len(values[name]) > 1 {
			return q, "the parameter " + name + " is repeated"
		}
	}
	q.live = values.Get("live")
	if values.Has("live") && q.live != longPoll && q.live != sse {
		return q, "live must be long-poll or sse"
	}
	q.cursor, _ = strconv.ParseUint(values.Get("cursor"), 10, 53) // that of another server does not count
	q.run = values.Get("run")
	if !values.Has("offset") {
		if q.live != catchUp {
			return q, "live reads require the parameter offset"
		}
		return q, ""
	}
	switch text := values.Get("offset"); text {
	case "-1":
	case "now":
		q.from.end = true
	default:
		var ok bool
		if q.from.at, ok = parseOffset(text); !ok {
			return q, "the offset must be -1, now, or a value of Stream-Next-Offset"
		}
	}
	return q, ""
}
