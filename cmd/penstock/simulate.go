package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/errors"
)

// simulate runs the command. It prints invalid lines itself and returns every other error.
func simulate(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	c, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	rates := c.rate
	if c.suggest != nil && rates == nil {
		rates = replay.RoundRates()
	}
	p := &runner{config: c, stdin: stdin, stderr: stderr}
	first, err := p.run(replay.Options{Policies: c.policies, Rates: rates, Per: c.per, Late: c.late})
	if err != nil {
		return err
	}
	out := &report{Trace: first.summary, Policies: first.replay.Results()}
	panels := panelsOf(first.replay, c.policies)
	var failed error // a failed suggestion does not suppress the rest of the report
	if c.suggest != nil {
		var suggested []chart.Panel
		suggested, failed = out.suggest(p, first)
		panels = append(panels, suggested...)
	}
	if failed == nil && c.plot != "" && len(panels) == 0 {
		failed = fmt.Errorf("nothing to plot: %s cannot be read twice, so there is no result for the suggested policy; give a file or a -policy", first.summary.Name)
	}
	if err := errors.Join(out.write(stdout, c.json), c.draw(panels), failed); err != nil {
		return err
	}
	if first.summary.InvalidLines > 0 {
		return errInvalidLines
	}
	return nil
}

// suggest adds a suggestion to the report, with its result if the trace can be read twice.
func (r *report) suggest(p *runner, first *result) ([]chart.Panel, error) {
	candidates, best, err := first.replay.Suggest(*p.config.suggest, p.config.within)
	if err != nil {
		return nil, err
	}
	r.Suggestion = &suggestion{Share: *p.config.suggest, Within: p.config.within, Candidates: candidates, Best: best}
	if !first.repeatable {
		return nil, nil
	}
	p.quiet = true // the first run has printed the invalid lines
	policies := make([]replay.Policy, len(candidates))
	for i, c := range candidates {
		policies[i] = replay.TokenBucket(c.Policy)
	}
	second, err := p.run(replay.Options{Policies: policies, Per: p.config.per, Late: p.config.late})
	if err != nil {
		return nil, err
	}
	outcome := second.replay.Results()[best]
	if second.summary != first.summary || outcome.KeysRejected != candidates[best].KeysRejected {
		return nil, fmt.Errorf("%s changed during the simulation; the suggestion is based on the first reading", first.summary.Name)
	}
	r.Suggestion.Result = &outcome
	panels := panelsOf(second.replay, policies)
	compared := panels[best]
	compared.Title = fmt.Sprintf("what the candidates of -suggest p%s admit, in steps of %s", p.config.suggest.Percent(), short(compared.Step))
	for i, panel := range panels {
		name := policies[i].String()
		if i == best {
			name += ", suggested"
		}
		compared.Compared = append(compared.Compared, chart.Curve{Name: name, Admitted: panel.Admitted})
	}
	return []chart.Panel{panels[best], compared}, nil
}

func panelsOf(r *replay.Replay, policies []replay.Policy) []chart.Panel {
	timeline := r.Timeline()
	stats := r.Stats()
	timeline.Coarsen(stepsFor(stats.Requests))
	panels := make([]chart.Panel, len(policies))
	for i, result := range r.Results() {
		panels[i] = chart.Panel{
			Title: fmt.Sprintf("%v: %s requests admitted, %s rejected, in steps of %s", policies[i],
				grouped(result.Admitted), grouped(result.Rejected), short(timeline.Step())),
			Start: timeline.Start(), Step: timeline.Step(), First: stats.First, Last: stats.Last,
			Demand: timeline.Demand(), Admitted: timeline.Admitted(i),
		}
	}
	return panels
}

// stepsFor returns how many steps to draw: enough to show bursts, but with about 20 requests per
// step, so that a step shows a rate and not single requests.
func stepsFor(requests int64) int { return int(min(max(requests/20, 40), 400)) }

// draw writes the plot if -plot is set.
func (c *config) draw(panels []chart.Panel) error {
	if c.plot == "" || len(panels) == 0 {
		return nil
	}
	kind, err := chart.KindOf(c.plot)
	if err != nil {
		return err
	}
	var image bytes.Buffer
	if err := chart.Write(&image, kind, panels); err != nil {
		return err
	}
	return os.WriteFile(c.plot, image.Bytes(), 0o644)
}
