package internal_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/report"
)

// A lockedText has what is written, also by goroutines of timers.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// take returns what has been written since the last call.
func (l *lockedText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// newLog returns a log whose lines have no time.
func newLog(level slog.Level) (*report.Log, *lockedText) {
	text := new(lockedText)
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	l := new(report.Log)
	l.Init(slog.New(slog.NewTextHandler(text, opts)))
	return l, text
}

func TestLog_CountsWhatItSuppresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := newLog(slog.LevelDebug)
		l.Errors(t.Context(), 3, report.Kind{Text: "failed"}, slog.String("error", "a"))
		l.Errors(t.Context(), 1, report.Kind{Text: "failed"}, slog.String("error", "b"))
		l.Errors(t.Context(), 4, report.Kind{Text: "failed"}, slog.String("error", "c"))
		l.Errors(t.Context(), 1, report.Kind{Text: "failed", Origin: "other"}, slog.String("error", "d"))
		assert.Equal(t, "level=ERROR msg=failed error=a suppressed=2\nlevel=ERROR msg=failed error=d\n", text.take())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, "level=ERROR msg=failed error=b suppressed=4\n", text.take())
		l.Errors(t.Context(), 1, report.Kind{Text: "failed"}, slog.String("error", "e"))
		l.Flush()
		l.Flush()
		assert.Equal(t, "level=ERROR msg=failed error=e\n", text.take())
	})
}

func TestLog_DebugLinesAreMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := newLog(slog.LevelDebug)
		for range 12 {
			l.Debug(t.Context(), report.Kind{Text: "opened"})
		}
		assert.Equal(t, strings.Repeat("level=DEBUG msg=opened\n", 10), text.take())
		l.Flush()
		assert.Equal(t, "level=DEBUG msg=opened suppressed=1\n", text.take())
	})
}

func TestLog_DisabledDebugLinesAreNotCounted(t *testing.T) {
	l, text := newLog(slog.LevelInfo)
	for range 12 {
		l.Debug(t.Context(), report.Kind{Text: "opened"})
	}
	l.Flush()
	assert.Empty(t, text.take())
}

func TestBound_BoundsTexts(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for key, limit := range map[string]int{"ip": 128, "error": 512, "panic": 512, "remedy": 512, "stack": 8192} {
		got := report.Bound(slog.String(key, long))[0].Value.String()
		assert.LessOrEqual(t, len(got), limit+len("…"), key)
		assert.Equal(t, long[:limit-len("…")], got[:limit-len("…")], key)
	}
	assert.Equal(t, []slog.Attr{slog.String("error", "a\n\t\uFFFD\uFFFDé"), slog.Int("n", 1)},
		report.Bound(slog.String("error", "a\n\t\x1b\xffé"), slog.Int("n", 1)))
}
