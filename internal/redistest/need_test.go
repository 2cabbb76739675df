package redistest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
)

// A verdict records how a constructor ends the test that it is given.
type verdict struct {
	testing.TB

	text string
}

func (v *verdict) Skipf(format string, args ...any) {
	v.end("skip: " + fmt.Sprintf(format, args...))
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.end("fail: " + fmt.Sprintf(format, args...))
}

func (v *verdict) Fatal(args ...any) { v.end("fail: " + fmt.Sprint(args...)) }

func (v *verdict) end(text string) {
	v.text = text
	runtime.Goexit()
}

// verdictOf returns "skip: " or "fail: " and why, or nothing.
func verdictOf(t *testing.T, construct func(testing.TB)) string {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		construct(v)
	}()
	<-done
	return v.text
}

func TestWithoutRedis(t *testing.T) {
	t.Setenv("PATH", "")
	start := func(t testing.TB) { redistest.Start(t) }
	for _, c := range []struct{ ci, require, want string }{
		{"", "", "skip: "},
		{"true", "", "fail: "},
		{"", "1", "fail: "},
	} {
		t.Setenv("CI", c.ci)
		t.Setenv("PENSTOCK_REQUIRE_REDIS", c.require)
		text := verdictOf(t, start)
		assert.True(t, strings.HasPrefix(text, c.want), "%+v: %s", c, text)
		assert.Contains(t, text, "install Redis")
	}
}
