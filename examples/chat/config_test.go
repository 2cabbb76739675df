package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		{"-lame-duck=-1s", "-lame-duck is -1s; it must not be negative"},
		{"-addr=nowhere", "-addr: listen tcp"},
		{"-metrics-addr=nowhere", "-metrics-addr: listen tcp"},
		{"-redis=localhost", `-redis is "localhost"; it must be a URL such as redis://`},
		{"-record=/dev/null", "-record: recorder: mkdir /dev/null: not a directory"},
		{"-nope", "flag provided but not defined: -nope"},
		{"extra", `unexpected argument "extra"`},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), []string{tt.flag}, &stdout, &stderr), tt.flag)
		assert.Contains(t, stderr.String(), tt.want)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		assert.Empty(t, stdout.String())
	}
}

func TestRun_HelpPrintsUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "-on-exceeded")
}
