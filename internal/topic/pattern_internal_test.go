package topic

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/internal/topicname"
)

// randomPattern returns a valid pattern. Few literals make overlapping patterns likely.
func randomPattern(rnd *rand.Rand) string {
	var parts []string
	for n := 1 + rnd.IntN(4); len(parts) < n; {
		switch i := len(parts); rnd.IntN(5) {
		case 0, 1:
			parts = append(parts, fmt.Sprintf("{w%d}", i))
		case 2:
			if i == n-1 {
				parts = append(parts, "{rest...}")
			} else {
				parts = append(parts, "a")
			}
		default:
			parts = append(parts, string(rune('a'+rnd.IntN(3))))
		}
	}
	return strings.Join(parts, "/")
}

// randomName returns a name that ServeMux neither cleans nor rejects; its last segment may be
// empty.
func randomName(rnd *rand.Rand) string {
	var parts []string
	for n := 1 + rnd.IntN(5); len(parts) < n; {
		parts = append(parts, string(rune('a'+rnd.IntN(4))))
	}
	if len(parts) > 1 && rnd.IntN(6) == 0 {
		parts[len(parts)-1] = ""
	}
	return strings.Join(parts, "/")
}

func newPattern(t *testing.T, text string) *Pattern {
	segments, err := topicname.Parse(text)
	require.NoError(t, err, text)
	return &Pattern{Text: text, segments: segments}
}

// declare declares a pattern without options.
func declare(ts *Topics, p *Pattern) *Pattern {
	return ts.Declare(p.Text, p.Position, p.segments, p.Options)
}

// registered reports whether f does not panic.
func registered(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return true
}

// muxMatch returns the pattern that a ServeMux selects and the values of its wildcards. ok is
// false if it redirects.
func muxMatch(mux *http.ServeMux, name string) (pattern string, values map[string]string, ok bool) {
	req := httptest.NewRequest(http.MethodGet, "/"+name, nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req)
	if w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect {
		return "", nil, false
	}
	values = map[string]string{}
	for _, wildcard := range []string{"w0", "w1", "w2", "w3", "rest"} {
		values[wildcard] = req.PathValue(wildcard)
	}
	return strings.TrimPrefix(req.Pattern, "GET /"), values, true
}

// TestTopicPattern_AgreesWithServeMux registers random patterns here and in a ServeMux: the same
// ones must conflict, and each name must select the same pattern and values.
func TestTopicPattern_AgreesWithServeMux(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test needs the same numbers again
	conflicts, matches, redirects := 0, 0, 0
	tables := testscale.Tiers(400, 800, 2000)
	for range tables {
		mux, ts := http.NewServeMux(), &Topics{}
		for range 8 {
			text := randomPattern(rnd)
			p := newPattern(t, text)
			want := registered(func() { mux.HandleFunc("GET /"+text, func(http.ResponseWriter, *http.Request) {}) })
			require.Equal(t, want, registered(func() { declare(ts, p) }), "%q after %v", text, ts.patterns)
			if !want {
				conflicts++
			}
		}
		for range 20 {
			name := randomName(rnd)
			require.Equal(t, strings.TrimSuffix("/"+name, "/"), path.Clean("/"+name))
			pattern, values, ok := muxMatch(mux, name)
			if !ok {
				redirects++
				continue
			}
			p := ts.PatternOf(name)
			require.Equal(t, pattern, p.Text, "%q", name)
			for wildcard, want := range values {
				require.Equal(t, want, p.Value(name, wildcard), "%s in %q of %q", wildcard, name, pattern)
			}
			if pattern != "" {
				matches++
			}
		}
	}
	assert.Greater(t, conflicts, tables/2)
	assert.Greater(t, matches, 5*tables)
	assert.Less(t, redirects, 5*tables)
}

// TestTopicPattern_ConflictNamesCommonTopic checks that both patterns match the name in the panic.
func TestTopicPattern_ConflictNamesCommonTopic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test needs the same numbers again
	conflicts := 0
	for range 20000 {
		p, other := newPattern(t, randomPattern(rnd)), newPattern(t, randomPattern(rnd))
		ts := &Topics{}
		declare(ts, p)
		if registered(func() { declare(ts, other) }) {
			continue
		}
		conflicts++
		name := p.segments.CommonName(other.segments)
		for _, pattern := range []*Pattern{p, other} {
			alone := &Topics{}
			declared := declare(alone, pattern)
			require.Same(t, declared, alone.PatternOf(name), "%q of %q and %q", name, p.Text, other.Text)
		}
	}
	assert.Greater(t, conflicts, 500)
}

func TestTopicPattern_MatchesNamesThatServeMuxCleans(t *testing.T) {
	ts := &Topics{}
	for _, text := range []string{"a/{one}", "a/{one}/end", "files/{rest...}"} {
		declare(ts, newPattern(t, text))
	}
	for name, want := range map[string]string{
		"a/..": "a/{one}", "a/%2F": "a/{one}", "a/{one}": "a/{one}", "a//end": "", "a/": "", "a": "", "/a/b": "", "": "",
		"files": "", "files/": "files/{rest...}", "files//x/": "files/{rest...}", "files/../x": "files/{rest...}",
	} {
		assert.Equal(t, want, ts.PatternOf(name).Text, "%q", name)
	}
	assert.Equal(t, "/x/", ts.PatternOf("files//x/").Value("files//x/", "rest"))
}

// TestTopicPattern_HostileNameIsCheap matches a name that makes a search which tries every
// combination of literal and wildcard take 2^40 steps.
func TestTopicPattern_HostileNameIsCheap(t *testing.T) {
	ts := &Topics{}
	for i := range 40 {
		declare(ts, newPattern(t, strings.Repeat("a/", i)+"{x}"+strings.Repeat("/a", 40)+"/"+strings.Repeat("b", i+1)))
	}
	assert.Same(t, undeclared, ts.PatternOf(strings.Repeat("a/", 80)+"a"))
}

// hundredPatterns declares the topics of an application with 100 patterns.
func hundredPatterns() *Topics {
	ts := &Topics{}
	for i := range 25 {
		for _, form := range []string{"kind%d", "kind%d/{id}", "kind%d/{id}/members", "kind%d/{id}/files/{path...}"} {
			text := fmt.Sprintf(form, i)
			segments, _ := topicname.Parse(text)
			ts.Declare(text, "", segments, Options{})
		}
	}
	return ts
}

func BenchmarkTopicPattern_Match(b *testing.B) {
	ts := hundredPatterns()
	for _, name := range []string{"kind7", "kind12/4711", "kind24/4711/files/a/b/c.txt", "unknown/4711"} {
		b.Run(strings.ReplaceAll(name, "/", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ts.PatternOf(name)
			}
		})
	}
}

func TestTopicPattern_MatchDoesNotAllocate(t *testing.T) {
	ts := hundredPatterns()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ts.PatternOf("kind24/4711/files/a/b/c.txt").Value("kind24/4711/files/a/b/c.txt", "path")
	}))
}
