package main

import (
	"io"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A jsonReport is the report with -json. Fields named Micros are in microseconds.
type jsonReport struct {
	Trace      jsonTrace       `json:"trace"`
	Policies   []jsonResult    `json:"policies"`
	Suggestion *jsonSuggestion `json:"suggestion,omitempty"`
}

type jsonTrace struct {
	Name              string    `json:"name"`
	Per               string    `json:"per"`
	Lines             int64     `json:"lines"`
	InvalidLines      int64     `json:"invalidLines"`
	Requests          int64     `json:"requests"`
	Keys              int64     `json:"keys"`
	First             time.Time `json:"first"`
	Last              time.Time `json:"last"`
	OutOfOrder        int64     `json:"outOfOrder"`
	MaxLatenessMicros int64     `json:"maxLatenessMicros"`
	LateInBucket      int64     `json:"lateInBucket"`
}

type jsonResult struct {
	Policy             string          `json:"policy"`
	Admitted           int64           `json:"admitted"`
	Delayed            int64           `json:"delayed"`
	LongestDelayMicros int64           `json:"longestDelayMicros"`
	Rejected           int64           `json:"rejected"`
	NeverAdmitted      int64           `json:"neverAdmitted"`
	KeysRejected       int64           `json:"keysRejected"`
	WorstWaitMicros    int64           `json:"worstWaitMicros"`
	Overflowed         int64           `json:"overflowed"`
	RejectionsPerKey   jsonPercentiles `json:"rejectionsPerKey"`
}

type jsonPercentiles struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

type jsonSuggestion struct {
	Policy       string          `json:"policy"`
	SharePercent jsonv2.Value    `json:"sharePercent"`
	WithinMicros int64           `json:"withinMicros"`
	Candidates   []jsonCandidate `json:"candidates"`
	Result       *jsonResult     `json:"result"`
}

type jsonCandidate struct {
	Policy          string  `json:"policy"`
	KeysRejected    int64   `json:"keysRejected"`
	MaxWithin       float64 `json:"maxWithin"`
	FullAfterMicros int64   `json:"fullAfterMicros"`
}

func (r *report) writeJSON(w io.Writer) error {
	a := r.Trace
	out := jsonReport{Policies: []jsonResult{}, Trace: jsonTrace{
		Name: a.Name, Per: string(a.Per), Lines: a.Lines, InvalidLines: a.InvalidLines, Requests: a.Requests, Keys: a.Keys, First: a.First, Last: a.Last,
		OutOfOrder: a.OutOfOrder, MaxLatenessMicros: a.MaxLateness.Microseconds(), LateInBucket: a.LateInBucket,
	}}
	for _, result := range r.Policies {
		out.Policies = append(out.Policies, jsonOf(result))
	}
	if r.Suggestion != nil {
		out.Suggestion = r.Suggestion.json()
	}
	if err := jsonv2.MarshalWrite(w, out, jsonv2.WithIndent("  ")); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func jsonOf(r replay.Result) jsonResult {
	return jsonResult{
		Policy: r.Policy.String(), Admitted: r.Admitted, Delayed: r.Delayed, LongestDelayMicros: r.LongestDelay.Microseconds(),
		Rejected: r.Rejected, NeverAdmitted: r.NeverAdmitted, KeysRejected: r.KeysRejected,
		WorstWaitMicros: r.WorstWait.Microseconds(), Overflowed: r.Overflowed, RejectionsPerKey: jsonPercentiles(r.PerKey),
	}
}

func (s *suggestion) json() *jsonSuggestion {
	out := &jsonSuggestion{Policy: s.Policy().String(), SharePercent: jsonv2.Value(s.Share.Percent()), WithinMicros: s.Within.Microseconds()}
	for _, c := range s.Candidates {
		out.Candidates = append(out.Candidates, jsonCandidate{
			Policy: c.Policy.String(), KeysRejected: c.KeysRejected, MaxWithin: c.Max, FullAfterMicros: c.FullAfter.Microseconds(),
		})
	}
	if s.Result != nil {
		result := jsonOf(*s.Result)
		out.Result = &result
	}
	return out
}
