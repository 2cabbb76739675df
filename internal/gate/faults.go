package main

import (
	"maps"
	"slices"
)

// faults returns what fails the gate, whatever a later run of the same test shows.
func faults(runs []*run) []string {
	var found []string
	for _, r := range runs {
		found = append(found, r.races...)
		switch r.action {
		case "":
			found = append(found, r.pkg+": has not ended")
		case "fail":
			found = append(found, r.whyFailed()...)
		}
	}
	for name, passed := range rerun(runs) {
		if !passed {
			found = append(found, name+": has failed, and has not passed alone")
		}
	}
	slices.Sort(found)
	return found
}

// whyFailed returns the faults of a run that has failed. It returns none if all that failed are
// tests, which are run again.
func (r *run) whyFailed() []string {
	found := slices.Clone(r.faults)
	failed := false
	for _, e := range r.tests {
		switch e.Action {
		case "fail":
			failed = true
		case "run":
			found = append(found, e.name()+": has not ended")
		}
	}
	if !failed && len(found)+len(r.races) == 0 {
		found = append(found, r.pkg+": fails without a test that fails: "+r.line)
	}
	return found
}

// rerun returns the tests that have failed, and whether each has passed in a later run.
func rerun(runs []*run) map[string]bool {
	failed := map[string]bool{}
	for _, r := range runs {
		for _, e := range r.tests {
			if e.isPart() {
				continue
			}
			if _, again := failed[e.name()]; again && e.Action == "pass" {
				failed[e.name()] = true
			} else if e.Action == "fail" {
				failed[e.name()] = false
			}
		}
	}
	return failed
}

// flaky returns the tests that have failed and then passed, sorted by name.
func flaky(runs []*run) []string {
	failed := rerun(runs)
	maps.DeleteFunc(failed, func(_ string, passed bool) bool { return !passed })
	return slices.Sorted(maps.Keys(failed))
}
