package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/errors"
)

const loadUsage = `usage: penstock load [-call TYPE | -send TYPE] [-subscribe TOPIC] [flags] URL

Sends messages of one type to a server, at a fixed rate over many connections, and prints the
latency of the answers, the rejections by code, the connections that were lost, and the reach: how
many of the expected publications the connections have received. URL is that of the WebSocket
endpoint, such as ws://localhost:8080/ws.

Messages are sent whether or not earlier ones have been answered, and whatever retryAfterMs says.
The latency of a message begins when it is due, so a server that stands still delays all messages of
that time. Interrupt the command (SIGINT or SIGTERM) to end the load early; it then prints what it has
measured.

Placeholders in payloads, -token and -header: {{conn}} is the number of the connection, from 0. In
-payload, {{n}} is the number of the message, and {{mark}} a text by which publications are
recognized: put it into a field that the server copies into the publication.

The exit status is 1 if no connection could be opened.

Examples:
  penstock load -call WHO -payload '{"room":"go"}' -token 'user{{conn}}' -rate 100 -connections 20 ws://localhost:8080/ws
  penstock load -call SAY -payload '{"room":"go","text":"{{mark}}"}' -setup 'JOIN_ROOM {"room":"go"}' ws://localhost:8080/ws
  penstock load -subscribe news -connections 10000 -ramp 500 -duration 1m wss://staging.example.com/ws

Flags:
`

// loadFlags holds the values of the flags.
type loadFlags struct {
	load.Options
	call, send string
	payload    string
	payloadSet bool   // -payload is given
	contract   string // URL or path
	token      string
	tokenFile  string
	headers    []header
	json       string // path, or - for standard output
	plot       string // path
}

// loadCommand runs "penstock load".
func loadCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f, err := parseLoad(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	if err := f.read(stdin); err != nil {
		return err
	}
	line := terminalLine(stderr)
	if line != nil {
		f.Progress = func(p load.Progress) { line.print(progressText(p)) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the command at once
	report, err := load.Run(ctx, f.Options)
	line.clear()
	if err != nil {
		return err
	}
	return f.write(stdout, report)
}

// parseLoad parses the arguments and checks what needs no file.
func parseLoad(args []string, stdout io.Writer) (*loadFlags, error) {
	f := &loadFlags{}
	flags := f.flagSet()
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "%s", loadUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case flags.NArg() != 1:
		return nil, fmt.Errorf("load needs one URL, such as ws://localhost:8080/ws; it has %d arguments", flags.NArg())
	}
	flags.Visit(func(set *flag.Flag) { f.payloadSet = f.payloadSet || set.Name == "payload" })
	f.URL = flags.Arg(0)
	return f, f.check()
}

func (f *loadFlags) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&f.call, "call", "", "`type` of the calls to send; the latency is that of the reply")
	flags.StringVar(&f.send, "send", "", "`type` of the events to send, which have no reply; the latency is that of the acknowledgment")
	flags.StringVar(&f.payload, "payload", "{}", "`JSON` to send, @file to read it from a file, or @- from standard input")
	flags.StringVar(&f.contract, "contract", "", "make the payload from the contract of the server: the `URL` of contract.Handler, or a file contract.json")
	flags.Func("setup", "`call` that each connection makes first, such as 'JOIN_ROOM {\"room\":\"go\"}'; may be repeated", f.addSetup)
	flags.StringVar(&f.Topic, "subscribe", "", "`topic` to which each connection subscribes")
	flags.IntVar(&f.Connections, "connections", 10, "`number` of connections")
	flags.Float64Var(&f.Ramp, "ramp", 100, "`connections` to open per second")
	flags.BoolVar(&f.Reconnect, "reconnect", false, "open lost connections again, after the backoff of clients")
	flags.Float64Var(&f.Rate, "rate", 10, "`messages` per second, over all connections")
	flags.DurationVar(&f.Warmup, "warmup", 0, "`time` at the beginning that is not measured")
	flags.DurationVar(&f.Duration, "duration", 10*time.Second, "`time` to measure")
	flags.DurationVar(&f.Timeout, "timeout", 10*time.Second, "`time` to wait for a handshake with its setup, and for what is missing at the end")
	flags.StringVar(&f.token, "token", "", "bearer `token` to send to the server")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with one token per line; connections take turns")
	flags.Func("header", "`header` of the handshake, such as 'Cookie: session={{conn}}'; may be repeated", f.addHeader)
	flags.StringVar(&f.json, "json", "", "write the report as JSON into a `file`, or with - to standard output in place of the text; durations are in microseconds")
	flags.StringVar(&f.plot, "plot", "", "plot rate and latency over time into an .svg or .png `file`")
	return flags
}
