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
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// simulate is the command. What it returns has not been told; bad lines have.
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
	p := &player{config: c, stdin: stdin, stderr: stderr}
	played, err := p.play(replay.Options{Policies: c.policies, Rates: rates, Per: c.per, Late: c.late})
	if err != nil {
		return err
	}
	out := &report{Trace: played.about, Policies: played.replay.Results()}
	panels := panelsOf(played.replay, c.policies)
	var failed error // to suggest, which takes nothing from the rest
	if c.suggest != nil {
		var again []chart.Panel
		again, failed = out.suggest(p, played)
		panels = append(panels, again...)
	}
	if failed == nil && c.plot != "" && len(panels) == 0 {
		failed = fmt.Errorf("there is nothing to draw: %s cannot be read twice, so what is suggested was not played; give a file, or a -policy", played.about.Name)
	}
	if err := errors.Join(out.write(stdout, c.json), c.draw(panels), failed); err != nil {
		return err
	}
	if played.about.BadLines > 0 {
		return errBadLines
	}
	return nil
}

// suggest adds a suggestion to the report, and what it does if the trace can be read twice.
func (r *report) suggest(p *player, played *played) ([]chart.Panel, error) {
	candidates, best, err := played.replay.Suggest(*p.config.suggest, p.config.within)
	if err != nil {
		return nil, err
	}
	r.Suggestion = &suggestion{Share: *p.config.suggest, Within: p.config.within, Candidates: candidates, Best: best}
	if !played.again {
		return nil, nil
	}
	p.quiet = true // bad lines have been told
	policies := []ratelimit.Policy{r.Suggestion.Policy()}
	again, err := p.play(replay.Options{Policies: policies, Per: p.config.per, Late: p.config.late})
	if err != nil {
		return nil, err
	}
	result := again.replay.Results()[0]
	if again.about != played.about || result.KeysRefused != candidates[best].KeysRefused {
		return nil, fmt.Errorf("%s changed while it was read; the suggestion is of its first reading", p.config.trace)
	}
	r.Suggestion.Played = &result
	return panelsOf(again.replay, policies), nil
}

// panelsOf returns what is drawn of a replay.
func panelsOf(r *replay.Replay, policies []ratelimit.Policy) []chart.Panel {
	timeline := r.Timeline()
	timeline.Coarsen(stepsFor(r.Stats().Calls))
	panels := make([]chart.Panel, len(policies))
	for i, result := range r.Results() {
		panels[i] = chart.Panel{
			Title: fmt.Sprintf("%v: %s calls admitted, %s refused, in steps of %s", policies[i],
				grouped(result.Admitted), grouped(result.Refused), short(timeline.Step())),
			Start: timeline.Start(), Step: timeline.Step(),
			Demand: timeline.Demand(), Admitted: timeline.Admitted(i),
		}
	}
	return panels
}

// stepsFor returns how many steps are drawn of so many calls: enough to see bursts, and
// few enough that a step is more than the one call that happens to be in it.
func stepsFor(calls int64) int { return int(min(max(calls/20, 40), 400)) }

// draw writes the plot, if one is wanted.
func (c *config) draw(panels []chart.Panel) error {
	if c.plot == "" || len(panels) == 0 {
		return nil
	}
	kind, err := chart.KindOf(c.plot)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := chart.Write(&picture, kind, panels); err != nil {
		return err
	}
	return os.WriteFile(c.plot, picture.Bytes(), 0o644)
}
