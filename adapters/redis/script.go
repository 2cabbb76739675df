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

// What scripts are made of.
var (
	//go:embed bucket.lua
	bucketLua string
	//go:embed consume.lua
	consumeLua string
	//go:embed joint.lua
	jointLua string
	//go:embed take.lua
	takeLua string
	//go:embed block.lua
	blockLua string
	//go:embed cooldown.lua
	cooldownLua string
	//go:embed acquire.lua
	acquireLua string
)

// A script is what a limiter runs. Redis from 7.0 on, and Valkey, understand a first
// line that lets it run though memory is full, which matters little to keys so small,
// and keeps a replica from deciding. Others do not, and get the script without it.
type script struct {
	modern, plain scriptText
	isPlain       atomic.Bool // the modern one was refused
}

type scriptText struct{ sha, text string }

func newScript(lua string) *script {
	return &script{modern: newScriptText("#!lua flags=allow-oom\n" + lua), plain: newScriptText(lua)}
}

// newScriptText names a text as SCRIPT LOAD does.
func newScriptText(text string) scriptText {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis demands it
	return scriptText{hex.EncodeToString(sum[:]), text}
}

func (s *script) text() *scriptText {
	if s.isPlain.Load() {
		return &s.plain
	}
	return &s.modern
}

// A command is a call of a script. It is sent at most once after it may have been
// executed, whatever the client was told about retries: a second time would charge
// twice.
type command struct {
	*goredis.Cmd
}

// NoRetry is what go-redis asks.
func (command) NoRetry() bool { return true }

// newCommand takes args that begin with the number of keys.
func newCommand(ctx context.Context, how, script string, args []any) command {
	c := command{goredis.NewCmd(ctx, append([]any{how, script}, args...)...)}
	c.SetFirstKeyPos(3)
	return c
}

// run runs the script once for each of args, in one round trip. A node that does not
// know it gets its text, once: a node that forgets it again at once is broken.
func (s *script) run(ctx context.Context, client goredis.UniversalClient, args [][]any) []*goredis.Cmd {
	text := s.text()
	replies := process(ctx, client, "evalsha", text.sha, args)
	resend(ctx, client, text.text, args, replies, isUnknownScript)
	if text == &s.modern && resend(ctx, client, s.plain.text, args, replies, isRefusedScript) {
		s.isPlain.Store(true)
	}
	return replies
}

// resend sends what has failed in a way that has executed nothing.
func resend(ctx context.Context, client goredis.UniversalClient, text string, args [][]any, replies []*goredis.Cmd, failed func(error) bool) bool {
	var again [][]any
	var at []int
	for i, reply := range replies {
		if failed(reply.Err()) {
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
		_ = client.Process(ctx, c) // the command knows
		replies[0] = c.Cmd
		return replies
	}
	pipe := client.Pipeline()
	for i, a := range args {
		c := newCommand(ctx, how, script, a)
		_ = pipe.Process(ctx, c) // queues it
		replies[i] = c.Cmd
	}
	_, _ = pipe.Exec(ctx) // the commands know
	return replies
}

// isUnknownScript looks for the word anywhere: proxies put their own before it.
func isUnknownScript(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }

// isRefusedScript is about the first line of the modern script.
func isRefusedScript(err error) bool {
	return err != nil && strings.Contains(err.Error(), "compiling script")
}
