package limitfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A named is a limiter with the name of its policy.
type named struct {
	name  string
	kinds []kind                // of policies that the limiter accepts
	form  string                // how they are written
	set   func(p *policy) error // replaces the policy of the limiter, which accepts its kind
}

// setterOf returns how the policy of a limiter is replaced. It is without kinds if that is not possible.
func setterOf(l limit.Limiter) named {
	switch l := l.(type) {
	case limit.PolicySetter[limit.Policy]:
		return named{kinds: []kind{bucket}, form: "10/s burst 20", set: func(p *policy) error { return l.SetPolicy(p.bucket) }}
	case limit.PolicySetter[limit.WindowPolicy]:
		return named{kinds: []kind{slidingLog, slidingCounter}, form: "sliding-log 10/m or sliding-counter 10/m", set: func(p *policy) error { return l.SetPolicy(p.window) }}
	case limit.PolicySetter[limit.QuotaPolicy]:
		return named{kinds: []kind{quota}, form: "quota 1000/day", set: func(p *policy) error { return l.SetPolicy(p.quota) }}
	}
	return named{}
}

// namedLimiters panics for limiters that no line of a file can describe.
func namedLimiters(limiters []limit.Limiter) (all []named) {
	if len(limiters) == 0 {
		panic("limitfile: Load needs at least one limiter")
	}
	seen := map[string]bool{}
	for _, l := range limiters {
		describer, ok := l.(adapter.Describer)
		if !ok {
			panic(fmt.Sprintf("limitfile: a %T does not describe its policy; Load needs a adapter.Describer, for its name", l))
		}
		descriptions := describer.Describe()
		if len(descriptions) != 1 {
			panic(fmt.Sprintf("limitfile: a %T has %d policies; pass the limiters of AllOf one by one", l, len(descriptions)))
		}
		one, name := setterOf(l), descriptions[0].Name
		switch {
		case name == "":
			panic(fmt.Sprintf("limitfile: the policy of a %T has no name; add one with Named, such as limit.PerSecond(10).Named(\"chat\")", l))
		case seen[name]:
			panic(fmt.Sprintf("limitfile: two limiters have a policy with the name %q; a line can describe one", name))
		case one.kinds == nil:
			panic(fmt.Sprintf("limitfile: the policy of a %T cannot change; Load needs a limit.PolicySetter", l))
		}
		seen[name] = true
		one.name = name
		all = append(all, one)
	}
	return all
}

// check returns an error unless the file has one policy of the right kind for each limiter, and no
// other ones.
func (f *File) check(p *Policies) error {
	var mistakes []error
	known := map[string]bool{}
	for _, l := range f.limiters {
		known[l.name] = true
		one := p.byName[l.name]
		switch {
		case one == nil:
			mistakes = append(mistakes, fmt.Errorf("there is no line for the limit %q", l.name))
		case !slices.Contains(l.kinds, one.kind):
			mistakes = append(mistakes, &InvalidLine{one.line, fmt.Errorf("the limiter of %q needs a policy such as %s; it is %s", l.name, l.form, one.text)})
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	for _, one := range p.list {
		if !known[one.name] {
			mistakes = append(mistakes, &InvalidLine{one.line, fmt.Errorf("there is no limit %q; the limits are %s", one.name, names)})
		}
	}
	return errors.Join(mistakes...)
}
