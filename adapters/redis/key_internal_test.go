package redis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

func TestNames(t *testing.T) {
	for want, key := range map[string]ratelimit.Key{
		"p:user:acme:ann:SAY":      {"user", "acme", "ann", "SAY"},
		"p:user::ann":              {"user", "", "ann"},
		"p":                        {},
		"p:user:acme:bob%3ASAY:X":  {"user", "acme", "bob:SAY", "X"},
		"p:%7Btag%7D:%25%7E%20%0A": {"{tag}", "%~ \n"},
		"p:jörg@example.com":       {"jörg@example.com"},
	} {
		assert.Equal(t, want, name("p", parts(&key)))
	}
	long := strings.Repeat("x", 200)
	got := name("p", []string{long})
	assert.True(t, strings.HasPrefix(got, "p:"+strings.Repeat("x", 64)+"~"), got)
	assert.Less(t, len(got), 128)
	assert.NotEqual(t, got, name("p", []string{long + "x"}))
}

// FuzzNames looks for keys that share a name.
func FuzzNames(f *testing.F) {
	f.Add("a", "b", "a:b", "")
	f.Add("a%3Ab", "", "a:b", "")
	f.Add("a", "", "a", ":")
	f.Add(strings.Repeat("x", 129), "", strings.Repeat("x", 64)+"~", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, two := ratelimit.Key{a, b}, ratelimit.Key{c, d}
		if name("p", parts(&one)) == name("p", parts(&two)) && one != two {
			t.Errorf("%q and %q are both %q", one, two, name("p", parts(&one)))
		}
		if strings.ContainsAny(name("p", parts(&one)), "{}") {
			t.Errorf("%q can choose a slot", one)
		}
	})
}
