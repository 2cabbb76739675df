package redis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/limit"
)

func TestKeyName(t *testing.T) {
	for want, key := range map[string]limit.Key{
		"p:user:acme:ann:SAY":      {"user", "acme", "ann", "SAY"},
		"p:user::ann":              {"user", "", "ann"},
		"p":                        {},
		"p:user:acme:bob%3ASAY:X":  {"user", "acme", "bob:SAY", "X"},
		"p:%7Btag%7D:%25%7E%20%0A": {"{tag}", "%~ \n"},
		"p:jörg@example.com":       {"jörg@example.com"},
	} {
		assert.Equal(t, want, keyName("p", keyParts(&key)))
	}
	long := strings.Repeat("x", 200)
	got := keyName("p", []string{long})
	assert.True(t, strings.HasPrefix(got, "p:"+strings.Repeat("x", 64)+"~"), got)
	assert.Less(t, len(got), 128)
	assert.NotEqual(t, got, keyName("p", []string{long + "x"}))
}

// FuzzKeyName looks for keys that share a name.
func FuzzKeyName(f *testing.F) {
	f.Add("a", "b", "a:b", "")
	f.Add("a%3Ab", "", "a:b", "")
	f.Add("a", "", "a", ":")
	f.Add(strings.Repeat("x", 129), "", strings.Repeat("x", 64)+"~", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, two := limit.Key{a, b}, limit.Key{c, d}
		if keyName("p", keyParts(&one)) == keyName("p", keyParts(&two)) && one != two {
			t.Errorf("%q and %q are both %q", one, two, keyName("p", keyParts(&one)))
		}
		if strings.ContainsAny(keyName("p", keyParts(&one)), "{}") {
			t.Errorf("%q can choose its hash slot", one)
		}
	})
}
