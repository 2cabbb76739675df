package redisclient

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// A Script is a Lua script in two forms. Redis from 7.0 on and Valkey understand a first line
// with flags: it lets the script run if memory is full, which small keys hardly change, and
// keeps a replica from running it. Other servers get the form without it.
type Script struct {
	*Forms

	IsPlain atomic.Bool // the server does not understand the modern form
}

// Forms are the two forms of a script, which several scripts may share.
type Forms struct{ modern, plain scriptText }

type scriptText struct{ sha, text string }

// NewScript returns a script that runs even if memory is full.
func NewScript(lua string) *Script {
	return &Script{Forms: NewForms("#!lua flags=allow-oom", lua)}
}

// NewForms returns the forms of a script whose modern form begins with a line.
func NewForms(firstLine, lua string) *Forms {
	return &Forms{modern: newScriptText(firstLine + "\n" + lua), plain: newScriptText(lua)}
}

// newScriptText computes the digest that SCRIPT LOAD would return.
func newScriptText(text string) scriptText {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis requires it
	return scriptText{hex.EncodeToString(sum[:]), text}
}

// A Command executes a script. The client must not retry it, whatever its options are, because
// a command that was executed twice would charge twice.
type Command struct {
	*goredis.Cmd
}

// NoRetry is the method that go-redis calls.
func (Command) NoRetry() bool { return true }

// NewCommand takes args that begin with the number of keys.
func NewCommand(ctx context.Context, how, script string, args []any) Command {
	c := Command{goredis.NewCmd(ctx, append([]any{how, script}, args...)...)}
	c.SetFirstKeyPos(3)
	return c
}

// Run executes the script once for each of args, in one round trip. A node that does not know
// the script is sent its text, once.
func (s *Script) Run(ctx context.Context, client goredis.UniversalClient, args [][]any) []*goredis.Cmd {
	text := &s.modern
	if s.IsPlain.Load() {
		text = &s.plain
	}
	replies := process(ctx, client, "evalsha", text.sha, args)
	resend(ctx, client, text.text, args, replies, isUnknownScript)
	if text == &s.modern && resend(ctx, client, s.plain.text, args, replies, isCompileError) {
		s.IsPlain.Store(true)
	}
	return replies
}

// resend sends the text of a script for calls with an error that implies that the script was not
// executed. It reports whether there were any.
func resend(ctx context.Context, client goredis.UniversalClient, text string, args [][]any, replies []*goredis.Cmd, notExecuted func(error) bool) bool {
	var again [][]any
	var at []int
	for i, reply := range replies {
		if notExecuted(reply.Err()) {
			again, at = append(again, args[i]), append(at, i)
		}
	}
	if len(again) == 0 {
		return false
	}
	for i, reply := range process(ctx, client, "eval", text, again) {
		replies[at[i]] = reply
	}
	return true
}

func process(ctx context.Context, client goredis.UniversalClient, how, script string, args [][]any) []*goredis.Cmd {
	replies := make([]*goredis.Cmd, len(args))
	if len(args) == 1 {
		c := NewCommand(ctx, how, script, args[0])
		_ = client.Process(ctx, c) // the command stores the error
		replies[0] = c.Cmd
		return replies
	}
	pipe := client.Pipeline()
	for i, a := range args {
		c := NewCommand(ctx, how, script, a)
		_ = pipe.Process(ctx, c) // only adds it to the pipeline
		replies[i] = c.Cmd
	}
	_, _ = pipe.Exec(ctx) // the commands store their errors
	return replies
}

// isUnknownScript searches the whole message, because proxies add a prefix.
func isUnknownScript(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }

// isCompileError reports an error about the first line of the modern form.
func isCompileError(err error) bool {
	return err != nil && strings.Contains(err.Error(), "compiling script")
}
