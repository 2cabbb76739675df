package internal_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
)

// A testRecorder records how a constructor ends its test.
type testRecorder struct {
	testing.TB

	text string
}

func (v *testRecorder) Skipf(format string, args ...any) {
	v.end("skip: " + fmt.Sprintf(format, args...))
}

func (v *testRecorder) Fatalf(format string, args ...any) {
	v.end("fail: " + fmt.Sprintf(format, args...))
}

func (v *testRecorder) Fatal(args ...any) { v.end("fail: " + fmt.Sprint(args...)) }

func (v *testRecorder) end(text string) {
	v.text = text
	runtime.Goexit()
}

// resultOf returns "skip: " or "fail: " with the reason, or "" if construct succeeds.
func resultOf(t *testing.T, construct func(testing.TB)) string {
	v := &testRecorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		construct(v)
	}()
	<-done
	return v.text
}

func TestStart_SkipsOrFailsWithoutRedis(t *testing.T) {
	t.Setenv("PATH", "")
	start := func(t testing.TB) { redistest.Start(t) }
	for _, c := range []struct{ ci, require, want string }{
		{"", "", "skip: "},
		{"true", "", "fail: "},
		{"", "1", "fail: "},
	} {
		t.Setenv("CI", c.ci)
		t.Setenv("PENSTOCK_REQUIRE_REDIS", c.require)
		text := resultOf(t, start)
		assert.True(t, strings.HasPrefix(text, c.want), "%+v: %s", c, text)
		assert.Contains(t, text, "install Redis")
	}
}
