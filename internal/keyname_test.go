package internal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

func TestJoin_EscapesParts(t *testing.T) {
	for want, key := range map[string]limit.Key{
		"p:user:acme:ann:SAY":      {"user", "acme", "ann", "SAY"},
		"p:user::ann":              {"user", "", "ann"},
		"p":                        {},
		"p:user:acme:bob%3ASAY:X":  {"user", "acme", "bob:SAY", "X"},
		"p:%7Btag%7D:%25%7E%20%0A": {"{tag}", "%~ \n"},
		"p:jörg@example.com":       {"jörg@example.com"},
	} {
		assert.Equal(t, want, keyname.Join("p", keyname.Parts(&key)))
	}
	long := strings.Repeat("x", 200)
	got := keyname.Join("p", []string{long})
	assert.True(t, strings.HasPrefix(got, "p:"+strings.Repeat("x", 64)+"~"), got)
	assert.Less(t, len(got), 128)
	assert.NotEqual(t, got, keyname.Join("p", []string{long + "x"}))
}

func TestJoinASCII_EscapesParts(t *testing.T) {
	for want, key := range map[string]limit.Key{
		"p:user:acme:ann:SAY":                {"user", "acme", "ann", "SAY"},
		"p:user::ann":                        {"user", "", "ann"},
		"p":                                  {},
		"p:user:acme:bob%3ASAY:X":            {"user", "acme", "bob:SAY", "X"},
		"p:j%C3%B6rg@example.com:%22%5C'<&>": {"j\u00f6rg@example.com", "\"\\'<&>"},
		"p:%FF:%EF%BF%BD":                    {"\xff", "\uFFFD"},
	} {
		assert.Equal(t, want, keyname.JoinASCII("p", keyname.Parts(&key)))
	}
	long := strings.Repeat("\xff", 43)
	got := keyname.JoinASCII("p", []string{long})
	assert.True(t, strings.HasPrefix(got, "p:"+strings.Repeat("%FF", 21)+"~"), got)
	assert.NotEqual(t, got, keyname.JoinASCII("p", []string{long + "x"}))
	longest := limit.Key{long, long, long, long}
	assert.Less(t, len(keyname.JoinASCII(keyname.ASCII(long), keyname.Parts(&longest))), 700)
}

func TestOfPolicy_NumbersReplaceMissingName(t *testing.T) {
	assert.Equal(t, "say", keyname.OfPolicy(limit.PerHour(1).Named("say")))
	assert.Equal(t, "3-per-1s-burst-7", keyname.OfPolicy(limit.Policy{Refill: 3, Capacity: 7}))
	assert.Equal(t, "3-per-1m0s-burst-3", keyname.OfPolicy(limit.PerMinute(3)))
}

func FuzzJoin_KeysShareNoName(f *testing.F) {
	f.Add("a", "b", "a:b", "")
	f.Add("a%3Ab", "", "a:b", "")
	f.Add("a", "", "a", ":")
	f.Add(strings.Repeat("x", 129), "", strings.Repeat("x", 64)+"~", "")
	f.Add("\xff", "", "%FF", "")
	f.Add("\xff", "", "\uFFFD", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, two := limit.Key{a, b}, limit.Key{c, d}
		for _, join := range []func(string, []string) string{keyname.Join, keyname.JoinASCII} {
			if join("p", keyname.Parts(&one)) == join("p", keyname.Parts(&two)) && one != two {
				t.Errorf("%q and %q are both %q", one, two, join("p", keyname.Parts(&one)))
			}
			if strings.ContainsAny(join("p", keyname.Parts(&one)), "{}") {
				t.Errorf("%q can choose its hash slot", one)
			}
		}
		for _, c := range []byte(keyname.JoinASCII("p", keyname.Parts(&one))) {
			if c <= ' ' || c > '~' || c == '"' || c == '\\' {
				t.Errorf("the name of %q contains %q", one, c)
			}
		}
	})
}
