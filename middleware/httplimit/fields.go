package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// describe makes the response list the policies of limiters.
func (h *httpLimit) describe(limiters ...limit.Limiter) {
	for i, l := range limiters {
		if d, ok := l.(adapter.Describer); ok && !slices.Contains(limiters[:i], l) {
			h.describers = append(h.describers, d)
		}
	}
}

// addFields adds the RateLimit fields, unless the limiter has not decided.
func (h *httpLimit) addFields(header http.Header, d *limit.Decision, denied bool) {
	if d.Limit == 0 {
		return
	}
	policies, decided := h.policies(d)
	var list []byte
	for i, p := range policies {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = strconv.AppendQuote(list, p.Name)
		list = appendParameter(list, "q", p.Limit)
		if p.Window > 0 {
			list = appendParameter(list, "w", wholeSeconds(p.Window))
		}
	}
	header.Add("RateLimit-Policy", string(list))

	reset := d.ResetAfter
	if denied && d.RetryAfter != limit.Never {
		reset = d.RetryAfter
	}
	item := strconv.AppendQuote(list[:0], policies[decided].Name)
	item = appendParameter(item, "r", d.Remaining)
	item = appendParameter(item, "t", wholeSeconds(reset))
	header.Add("RateLimit", string(item))
}

// policies returns the policies to announce, with a name each, and the index of the one that
// decided.
func (h *httpLimit) policies(d *limit.Decision) (all []limit.Description, decided int) {
	for _, describer := range h.describers {
		all = append(all, describer.Describe()...)
	}
	decided = indexOf(all, d)
	if decided < 0 { // a fallback, or a limiter that describes nothing
		return []limit.Description{{Name: h.Name, Limit: d.Limit}}, 0
	}
	named := make([]limit.Description, len(all))
	for i, p := range all {
		used := slices.ContainsFunc(named[:i], func(other limit.Description) bool { return other.Name == p.Name })
		if !isHeaderName(p.Name) || used {
			p.Name = h.Name
			if len(all) > 1 { // names must differ
				p.Name += "-" + strconv.Itoa(i+1)
			}
		}
		named[i] = p
	}
	return named, decided
}

// indexOf returns the index of the policy that decided, or -1.
func indexOf(all []limit.Description, d *limit.Decision) int {
	found := -1
	for i, p := range all {
		if p.Limit != d.Limit {
			continue
		}
		if p.Name == d.Policy {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// isHeaderName reports whether a name can be a string of a structured field without escapes.
func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

func appendParameter(b []byte, name string, n int64) []byte {
	b = append(b, ';')
	b = append(b, name...)
	b = append(b, '=')
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}

// wholeSeconds rounds up: a client that returns too early would be rejected again.
func wholeSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
