package main

import (
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
)

// The report for programs. A name that ends in Micros is of microseconds.
type jsonReport struct {
	Trace      jsonTrace       `json:"trace"`
	Policies   []jsonResult    `json:"policies"`
	Suggestion *jsonSuggestion `json:"suggestion,omitempty"`
}

type jsonTrace struct {
	Name           string    `json:"name"`
	Per            string    `json:"per"`
	Lines          int64     `json:"lines"`
	BadLines       int64     `json:"badLines"`
	Calls          int64     `json:"calls"`
	Keys           int64     `json:"keys"`
	First          time.Time `json:"first"`
	Last           time.Time `json:"last"`
	Unsorted       int64     `json:"unsorted"`
	FurthestMicros int64     `json:"furthestMicros"`
	LateInKey      int64     `json:"lateInKey"`
}

type jsonResult struct {
	Policy          string          `json:"policy"`
	Admitted        int64           `json:"admitted"`
	Refused         int64           `json:"refused"`
	RefusedForGood  int64           `json:"refusedForGood"`
	KeysRefused     int64           `json:"keysRefused"`
	WorstWaitMicros int64           `json:"worstWaitMicros"`
	RefusalsPerKey  jsonPercentiles `json:"refusalsPerKey"`
}

type jsonPercentiles struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

type jsonSuggestion struct {
	Policy       string          `json:"policy"`
	SharePercent jsontext.Value  `json:"sharePercent"`
	WithinMicros int64           `json:"withinMicros"`
	Candidates   []jsonCandidate `json:"candidates"`
	Played       *jsonResult     `json:"played"`
}

type jsonCandidate struct {
	Policy        string  `json:"policy"`
	KeysRefused   int64   `json:"keysRefused"`
	MostWithin    float64 `json:"mostWithin"`
	FillsInMicros int64   `json:"fillsInMicros"`
}

func (r *report) writeJSON(w io.Writer) error {
	a := r.Trace
	out := jsonReport{Policies: []jsonResult{}, Trace: jsonTrace{
		Name: a.Name, Per: string(a.Per), Lines: a.Lines, BadLines: a.BadLines, Calls: a.Calls, Keys: a.Keys, First: a.First, Last: a.Last,
		Unsorted: a.Unsorted, FurthestMicros: a.Furthest.Microseconds(), LateInKey: a.LateInKey,
	}}
	for _, result := range r.Policies {
		out.Policies = append(out.Policies, jsonOf(result))
	}
	if r.Suggestion != nil {
		out.Suggestion = r.Suggestion.json()
	}
	if err := json.MarshalWrite(w, out, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func jsonOf(r replay.Result) jsonResult {
	return jsonResult{
		Policy: r.Policy.String(), Admitted: r.Admitted, Refused: r.Refused, RefusedForGood: r.Never,
		KeysRefused: r.KeysRefused, WorstWaitMicros: r.WorstWait.Microseconds(), RefusalsPerKey: jsonPercentiles(r.PerKey),
	}
}

func (s *suggestion) json() *jsonSuggestion {
	out := &jsonSuggestion{Policy: s.Policy().String(), SharePercent: jsontext.Value(s.Share.Percent()), WithinMicros: s.Within.Microseconds()}
	for _, c := range s.Candidates {
		out.Candidates = append(out.Candidates, jsonCandidate{
			Policy: c.Policy.String(), KeysRefused: c.KeysRefused, MostWithin: c.Most, FillsInMicros: c.FillsIn.Microseconds(),
		})
	}
	if s.Played != nil {
		result := jsonOf(*s.Played)
		out.Played = &result
	}
	return out
}
