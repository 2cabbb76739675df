package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// The source of the scripts.
var (
	//go:embed leases.lua
	leasesLua string
	//go:embed leases_change.lua
	leasesChangeLua string
	//go:embed limiter_bucket.lua
	limiterBucketLua string
	//go:embed limiter_consume_one.lua
	limiterConsumeOneLua string
	//go:embed limiter_consume_many.lua
	limiterConsumeManyLua string
	//go:embed limiter_consume_part.lua
	limiterConsumePartLua string
	//go:embed limiter_consume_multi.lua
	limiterConsumeMultiLua string
	//go:embed limiter_settle.lua
	limiterSettleLua string
	//go:embed limiter_block.lua
	limiterBlockLua string
	//go:embed semaphore_acquire.lua
	semaphoreAcquireLua string
)

// bucketLua returns the script about buckets that ends with some text.
func bucketLua(end string) string { return leasesLua + limiterBucketLua + end }

// leaseFunctionsLua returns a function that returns a table of those about leases: a script creates all its
// functions whenever it runs, and few calls need these.
func leaseFunctionsLua() string {
	return "local function lease_functions()\n" + leasesLua + leasesChangeLua +
		"return { end_all = end_leases, has_all = has_leases, add = add_lease, settle = settle_lease,\n" +
		"  parse = parse_leases, find = find_lease, format = format_leases, first_end = first_end }\nend\n"
}

// A script is a Lua script in two forms. Redis from 7.0 on and Valkey understand a first line
// with flags: it lets the script run if memory is full, which small keys hardly change, and
// keeps a replica from running it. Other servers get the form without it.
type script struct {
	*scriptForms
	isPlain atomic.Bool // the server does not understand the modern form
}

type scriptForms struct{ modern, plain scriptText }

type scriptText struct{ sha, text string }

func newScript(lua string) *script { return &script{scriptForms: newScriptForms(lua)} }

func newScriptForms(lua string) *scriptForms {
	return &scriptForms{modern: newScriptText("#!lua flags=allow-oom\n" + lua), plain: newScriptText(lua)}
}

// newScriptText computes the digest that SCRIPT LOAD would return.
func newScriptText(text string) scriptText {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis requires it
	return scriptText{hex.EncodeToString(sum[:]), text}
}

func (s *script) text() *scriptText {
	if s.isPlain.Load() {
		return &s.plain
	}
	return &s.modern
}

// A command executes a script. The client must not retry it, whatever its options are, because
// a command that was executed twice would charge twice.
type command struct {
	*goredis.Cmd
}

// NoRetry is the method that go-redis calls.
func (command) NoRetry() bool { return true }

// newCommand takes args that begin with the number of keys.
func newCommand(ctx context.Context, how, script string, args []any) command {
	c := command{goredis.NewCmd(ctx, append([]any{how, script}, args...)...)}
	c.SetFirstKeyPos(3)
	return c
}

// run executes the script once for each of args, in one round trip. A node that does not know
// the script is sent its text, once.
func (s *script) run(ctx context.Context, client goredis.UniversalClient, args [][]any) []*goredis.Cmd {
	text := s.text()
	replies := process(ctx, client, "evalsha", text.sha, args)
	resend(ctx, client, text.text, args, replies, isUnknownScript)
	if text == &s.modern && resend(ctx, client, s.plain.text, args, replies, isCompileError) {
		s.isPlain.Store(true)
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
		c := newCommand(ctx, how, script, args[0])
		_ = client.Process(ctx, c) // the command stores the error
		replies[0] = c.Cmd
		return replies
	}
	pipe := client.Pipeline()
	for i, a := range args {
		c := newCommand(ctx, how, script, a)
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
