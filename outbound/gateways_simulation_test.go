package outbound_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/outbound"
)

// An apiWindow is the state that a gateway reports.
type apiWindow struct {
	limit, remaining int
	per, left        time.Duration
	ends             time.Time
}

// A gatewayAPI accepts a number of requests in windows that begin on the minute, and reports them as a gateway does.
type gatewayAPI struct {
	report  func(h http.Header, w apiWindow)
	limit   int
	per     time.Duration
	hasDate bool

	mu       sync.Mutex
	began    time.Time
	used     int
	rejected int
}

func (a *gatewayAPI) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(30 * time.Millisecond)
	defer time.Sleep(30 * time.Millisecond) // after the mutex is released
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if began := now.Truncate(a.per); began.After(a.began) {
		a.began, a.used = began, 0
	}
	code := http.StatusOK
	if a.used == a.limit {
		a.rejected++
		code = http.StatusTooManyRequests
	} else {
		a.used++
	}
	h := http.Header{}
	if a.hasDate {
		h.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	ends := a.began.Add(a.per)
	a.report(h, apiWindow{a.limit, a.limit - a.used, a.per, ends.Sub(now), ends})
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}, nil
}

// gateways report windows as each family of headers does: whole seconds are rounded up or down.
func gateways(round func(float64) float64) map[string]func(h http.Header, w apiWindow) {
	seconds := func(w apiWindow) string { return strconv.Itoa(int(round(w.left.Seconds()))) }
	set := func(prefix string, reset func(w apiWindow) string) func(http.Header, apiWindow) {
		return func(h http.Header, w apiWindow) {
			h.Set(prefix+"Limit", strconv.Itoa(w.limit))
			h.Set(prefix+"Remaining", strconv.Itoa(w.remaining))
			h.Set(prefix+"Reset", reset(w))
		}
	}
	epoch := func(w apiWindow) string { return strconv.FormatInt(w.ends.Unix(), 10) }
	milliseconds := func(w apiWindow) string { return strconv.FormatInt(w.ends.UnixMilli(), 10) }
	iso := func(w apiWindow) string { return w.ends.UTC().Format("2006-01-02T15:04:05.000Z") }
	javaScript := func(w apiWindow) string {
		return w.ends.UTC().Format("Mon Jan 02 2006 15:04:05 GMT-0700") + " (Coordinated Universal Time)"
	}
	return map[string]func(http.Header, apiWindow){
		"Discord": func(h http.Header, w apiWindow) {
			set("X-RateLimit-", epoch)(h, w)
			h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", math.Ceil(w.left.Seconds()*1000)/1000))
		},
		"GitHub":                            set("X-RateLimit-", epoch),
		"X":                                 set("X-Rate-Limit-", epoch),
		"GitLab":                            set("RateLimit-", epoch),
		"X-RateLimit, seconds from now":     set("X-RateLimit-", seconds),
		"X-Rate-Limit, seconds from now":    set("X-Rate-Limit-", seconds),
		"X-RateLimit, milliseconds":         set("X-RateLimit-", milliseconds),
		"X-RateLimit, ISO time":             set("X-RateLimit-", iso),
		"X-RateLimit, time in JavaScript":   set("X-RateLimit-", javaScript),
		"drafts 3 and 4, Kong":              set("RateLimit-", seconds),
		"RateLimit, milliseconds":           set("RateLimit-", milliseconds),
		"X-Rate-Limit, ISO time":            set("X-Rate-Limit-", iso),
		"X-Rate-Limit, time in JavaScript":  set("X-Rate-Limit-", javaScript),
		"X-RateLimit-Requests, a duration":  periodHeaders("Requests", func(w apiWindow) string { return w.left.String() }),
		"X-RateLimit-Minute, without reset": periodHeaders("Minute", nil),
		"AspNetCoreRateLimit": func(h http.Header, w apiWindow) {
			set("X-Rate-Limit-", iso)(h, w)
			h.Set("X-Rate-Limit-Limit", "1m")
		},
		"Anthropic": func(h http.Header, w apiWindow) {
			h.Set("Anthropic-RateLimit-Requests-Limit", strconv.Itoa(w.limit))
			h.Set("Anthropic-RateLimit-Requests-Remaining", strconv.Itoa(w.remaining))
			h.Set("Anthropic-RateLimit-Requests-Reset", iso(w))
		},
		"Docker Hub": func(h http.Header, w apiWindow) {
			h.Set("RateLimit-Limit", fmt.Sprintf("%d;w=%d", w.limit, w.per/time.Second))
			h.Set("RateLimit-Remaining", fmt.Sprintf("%d;w=%d", w.remaining, w.per/time.Second))
		},
		"drafts 0 to 2": func(h http.Header, w apiWindow) {
			set("RateLimit-", seconds)(h, w)
			h.Set("RateLimit-Limit", fmt.Sprintf("%d, %d;w=%d", w.limit, w.limit, w.per/time.Second))
		},
		"drafts 5 and 6": func(h http.Header, w apiWindow) {
			set("RateLimit-", seconds)(h, w)
			h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", w.limit, w.per/time.Second))
		},
		"draft 7": func(h http.Header, w apiWindow) {
			h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", w.limit, w.per/time.Second))
			h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%s", w.limit, w.remaining, seconds(w)))
		},
		"drafts 8 to 11": func(h http.Header, w apiWindow) { // t is exact: rounded up
			h.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, w.limit, w.per/time.Second))
			h.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, w.remaining, int(math.Ceil(w.left.Seconds()))))
		},
		"drafts 8 to 11, without a policy": func(h http.Header, w apiWindow) {
			h.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, w.remaining, int(math.Ceil(w.left.Seconds()))))
		},
		"drafts 8 to 11, without t": func(h http.Header, w apiWindow) {
			h.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, w.limit, w.per/time.Second))
			h.Set("RateLimit", fmt.Sprintf(`"default";r=%d`, w.remaining))
		},
	}
}

// periodHeaders reports a window with a word behind the names of the headers; reset may be nil.
func periodHeaders(word string, reset func(w apiWindow) string) func(http.Header, apiWindow) {
	return func(h http.Header, w apiWindow) {
		h.Set("X-RateLimit-Limit-"+word, strconv.Itoa(w.limit))
		h.Set("X-RateLimit-Remaining-"+word, strconv.Itoa(w.remaining))
		if reset != nil {
			h.Set("X-RateLimit-Reset-"+word, reset(w))
		}
	}
}

// TestTransport_RejectedByNoGateway sends 120 requests at once to an API of each family.
func TestTransport_RejectedByNoGateway(t *testing.T) {
	for rounding, round := range map[string]func(float64) float64{"up": math.Ceil, "down": math.Floor} {
		for name, report := range gateways(round) {
			for dates, hasDate := range map[string]bool{"with Date": true, "without Date": false} {
				t.Run(fmt.Sprintf("%s, rounded %s, %s", name, rounding, dates), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { requestGateway(t, report, hasDate) })
				})
			}
		}
	}
}

func requestGateway(t *testing.T, report func(http.Header, apiWindow), hasDate bool) {
	const requests, limit, per = 120, 10, time.Minute
	time.Sleep(17*time.Second + 123*time.Millisecond) // in the middle of a window
	start := time.Now()
	api := &gatewayAPI{report: report, limit: limit, per: per, hasDate: hasDate}
	transport := outbound.NewTransport(outbound.NewMemoryBudget(nil), &outbound.Options{Base: api})
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() { assert.Equal(t, http.StatusOK, request(t.Context(), transport)) })
	}
	wg.Wait()
	assert.Zero(t, api.rejected)
	assert.Less(t, time.Since(start), requests/limit*(2*per+5*time.Second))
}

// TestTransport_WaitsTwiceAsLongAfterEachRejectionWithoutDuration also lets one request succeed.
func TestTransport_WaitsTwiceAsLongAfterEachRejectionWithoutDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		codes := []int{429, 429, 429, 429, 429, 429, 429, 429, 429, 200, 429, 429, 200}
		tr := transport(func(*http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(start).Round(time.Second))
			start = time.Now()
			return respond(codes[len(sent)-1])
		}, outbound.Options{MaxRetries: 100})
		for range 2 {
			assert.Equal(t, 200, request(t.Context(), tr))
		}
		const s = time.Second
		assert.Equal(t, []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s, 0, s, 2 * s}, sent)
	})
}

// TestTransport_RejectionsOfOneBurstWaitOnce has 50 requests in flight that are all rejected.
func TestTransport_RejectionsOfOneBurstWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, rejects := time.Time{}, true
		var mu sync.Mutex
		waits := map[time.Duration]int{}
		tr := transport(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if begun.IsZero() {
				return respond(200)
			}
			if time.Since(begun) > 5*time.Second {
				rejects = false
			}
			if !rejects {
				return respond(200)
			}
			return respond(429)
		}, outbound.Options{OnRateLimited: func(_ string, s outbound.Status) {
			mu.Lock()
			defer mu.Unlock()
			waits[s.RetryAfter]++
		}})
		require.Equal(t, 200, request(t.Context(), tr), "there is no limit")
		begun = time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { assert.Equal(t, 200, request(t.Context(), tr)) })
		}
		wg.Wait()
		assert.Equal(t, 50, waits[time.Second])
		assert.LessOrEqual(t, len(waits), 3)
	})
}

// TestTransport_RetryAfterZero bounds what a caller causes that goes on without end.
func TestTransport_RetryAfterZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejections := 0
		tr := transport(func(*http.Request) (*http.Response, error) {
			rejections++
			time.Sleep(20 * time.Millisecond)
			return respond(429, "Retry-After: 0")
		}, outbound.Options{MaxRetries: -1})
		for start := time.Now(); time.Since(start) < 10*time.Minute; {
			request(t.Context(), tr)
		}
		assert.LessOrEqual(t, rejections, 600)
	})
}
