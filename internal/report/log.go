package report

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// How many lines of one kind are written. One failure of a database fails every message that needs it,
// so errors are rare in the log; events of connections are for debugging, where each one counts.
const (
	errorLinesPerInterval = 1
	errorLineInterval     = 5 * time.Second
	debugLinesPerInterval = 10
	debugLineInterval     = time.Second
)

// A Kind is what is sampled together. Clients must not choose anything in it.
type Kind struct {
	Text   string // of the lines
	Type   string // of the message
	Origin string // the stage, the check or the hook
	Code   errors.Code
}

// A line is a line of the log, with the context of what has caused it.
type line struct {
	ctx   context.Context
	level slog.Level
	text  string
	attrs []slog.Attr
}

// A Log is a logger whose lines are sampled. It must not be used under a lock: the handler of the logger
// may be code of the application.
type Log struct {
	logger *slog.Logger
	errors Lines[Kind, line]
	debug  Lines[Kind, line]
}

// Init must be called before other methods.
func (l *Log) Init(logger *slog.Logger) {
	l.logger = logger
	l.errors.Init(errorLinesPerInterval, errorLineInterval, l.write)
	l.debug.Init(debugLinesPerInterval, debugLineInterval, l.write)
}

// Errors logs n errors of a kind as one. The handler of the logger receives ctx, perhaps after an interval. Errors
// bounds the attributes in place, as Bound does.
func (l *Log) Errors(ctx context.Context, n int64, kind Kind, attrs ...slog.Attr) {
	l.errors.Add(kind, line{ctx, slog.LevelError, kind.Text, Bound(attrs...)}, n)
}

// Debug logs an event of a kind, like Errors.
func (l *Log) Debug(ctx context.Context, kind Kind, attrs ...slog.Attr) {
	if l.logger.Enabled(ctx, slog.LevelDebug) { // otherwise, the lines need not be counted
		l.debug.Add(kind, line{ctx, slog.LevelDebug, kind.Text, Bound(attrs...)}, 1)
	}
}

// Flush writes the numbers of lines that are suppressed.
func (l *Log) Flush() {
	l.errors.FlushAll()
	l.debug.FlushAll()
}

// write passes a line to the logger.
func (l *Log) write(line line, suppressed int64) {
	if suppressed > 0 {
		line.attrs = append(line.attrs, slog.Int64("suppressed", suppressed))
	}
	l.logger.LogAttrs(line.ctx, line.level, line.text, line.attrs...)
}
