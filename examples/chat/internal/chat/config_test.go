package chat

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

func TestRun_WrongFlagsPrintOneLineAndExit2(t *testing.T) {
	for _, tt := range []struct{ flag, want string }{
		{"-capacity=0", "-capacity is 0; it must be at least 1"},
		{"-capacity=many", `invalid value "many" for flag -capacity`},
		{"-refill=-1", "-refill is -1"},
		{"-key=room", `-key is "room"; it must be one of conn, ip, type, user, user-or-ip-type, user-type`},
		{"-on-exceeded=shout", `-on-exceeded is "shout"; it must be one of close, custom, send`},
		{"-max-bytes=0", "-max-bytes is 0"},
		{"-try=often", `invalid value "often" for flag -try: limit: policy "often"`},
		{"-max-in-flight=0", "-max-in-flight is 0"},
		{"-max-connections=-1", "-max-connections is -1; it must not be negative"},
		{"-nodes=0", "-nodes is 0; it must be at least 1"},
		{"-nodes=1001", "-nodes is 1001; it must be at most 1000"},
		{"-nodes=1000 -try=1/87600h", "the share of one of 1000 nodes: limit: policy \"try\": Per is"},
		{"-limits=/nowhere/limits.txt", "-limits: limits file /nowhere/limits.txt: stat /nowhere/limits.txt: no such file"},
		{"-limits=limits.txt -refill=5", "-limits has the rate limit; it cannot be combined with -capacity or -refill"},
		{"-lame-duck=-1s", "-lame-duck is -1s; it must not be negative"},
		{"-addr=nowhere", "-addr: listen tcp"},
		{"-metrics-addr=nowhere", "-metrics-addr: listen tcp"},
		{"-redis=localhost", `-redis is "localhost"; it must be a URL such as redis://`},
		{"-record=/dev/null", "-record: recorder: mkdir /dev/null: not a directory"},
		{"-nope", "flag provided but not defined: -nope"},
		{"extra", `unexpected argument "extra"`},
	} {
		var stdout, stderr bytes.Buffer
		flags := append([]string{"-addr=localhost:0"}, strings.Fields(tt.flag)...)
		assert.Equal(t, 2, Run(t.Context(), flags, &stdout, &stderr), tt.flag)
		assert.Contains(t, stderr.String(), tt.want)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		assert.Empty(t, stdout.String())
	}
}

func TestRun_HelpPrintsUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Zero(t, Run(t.Context(), []string{"-h"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "-on-exceeded")
}

func TestPerNode_DividesPolicy(t *testing.T) {
	policy := limit.PerSecond(5).Burst(20).Named("chat")
	for nodes, want := range map[int]limit.Policy{
		1:  policy,
		3:  {Name: "chat", Capacity: 6, Refill: 5, Per: 3 * time.Second},
		10: {Name: "chat", Capacity: 5, Refill: 5, Per: 10 * time.Second}, // a search costs 5
	} {
		share, err := perNode(policy, nodes)
		require.NoError(t, err)
		assert.Equal(t, want, share)
	}
	share, err := perNode(limit.Policy{Capacity: 2, Refill: 1}, 4)
	require.NoError(t, err)
	assert.Equal(t, limit.Policy{Capacity: 2, Refill: 1, Per: 4 * time.Second}, share)
	for _, policy := range []limit.Policy{policy, limit.PerHour(1)} {
		_, err := perNode(policy, maxNodes)
		assert.NoError(t, err)
	}
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the server logs rejected clients
	os.Exit(m.Run())
}
