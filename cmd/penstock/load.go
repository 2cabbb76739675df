package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/errors"
)

const loadUsage = `usage: penstock load -call TYPE [flags] URL

Sends calls of one type to a server, at a fixed rate over many connections, and prints the latency
of the replies, the rejections by code, and the connections that were lost. URL is that of the
WebSocket endpoint, such as ws://localhost:8080/ws.

Calls are sent whether or not earlier ones have been answered. The latency of a call begins when it
is due, so a server that stands still delays all calls of that time. Interrupt the command to end
the load early; it then prints what it has measured.

The exit status is 1 if no connection could be opened.

Example:
  penstock load -call WHO -payload '{"room":"go"}' -token ann -rate 100 -connections 20 ws://localhost:8080/ws

Flags:
`

// maxOwnCPU is the part of its processors above which the load generator may be what is slow.
const maxOwnCPU = 0.8

// loadCommand runs "penstock load".
func loadCommand(args []string, stdout io.Writer) error {
	o, asJSON, err := parseLoad(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printLoadJSON(stdout, report)
	}
	_, err = io.WriteString(stdout, loadText(report))
	return err
}

func parseLoad(args []string, stdout io.Writer) (o load.Options, asJSON bool, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.Type, "call", "", "`type` of the calls")
	flags.StringVar(&o.Payload, "payload", "{}", "`JSON` of the calls; {{n}} is replaced by the number of the call, and {{conn}} by that of its connection")
	flags.IntVar(&o.Connections, "connections", 10, "`number` of connections")
	flags.Float64Var(&o.Ramp, "ramp", 100, "`connections` to open per second")
	flags.Float64Var(&o.Rate, "rate", 10, "`calls` per second, over all connections")
	flags.DurationVar(&o.Warmup, "warmup", 0, "`time` at the beginning that is not measured")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "`time` to measure")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "`time` to wait for a handshake, and for answers at the end")
	token := flags.String("token", "", "bearer `token` to send to the server")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON, with durations in microseconds")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "%s", loadUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return o, false, err
	case err != nil:
		return o, false, err
	case flags.NArg() != 1:
		return o, false, fmt.Errorf("load needs one URL, such as ws://localhost:8080/ws; it has %d arguments", flags.NArg())
	}
	o.URL = flags.Arg(0)
	if *token != "" {
		o.Header = http.Header{"Authorization": {"Bearer " + *token}}
	}
	return o, asJSON, checkLoad(&o)
}

func checkLoad(o *load.Options) error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "":
		return fmt.Errorf("%q is not a URL that begins with ws:// or wss://", o.URL)
	case o.Type == "":
		return errors.New("no calls; give the type of a message, such as -call WHO")
	case !json.Valid([]byte(strings.NewReplacer("{{n}}", "0", "{{conn}}", "0").Replace(o.Payload))):
		return fmt.Errorf("-payload is not JSON: %s", o.Payload)
	case o.Connections < 1:
		return fmt.Errorf("-connections is %d; it must be at least 1", o.Connections)
	case !(o.Rate > 0) || !(o.Ramp > 0):
		return errors.New("-rate and -ramp must be more than 0")
	case o.Duration <= 0 || o.Timeout <= 0 || o.Warmup < 0:
		return errors.New("-duration and -timeout must be more than 0, and -warmup must not be negative")
	}
	return nil
}

func loadText(r *load.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s in %s\n", counted(int64(r.Connections), "connection"), counted(r.Sent, "call"), short(r.Elapsed.Round(time.Millisecond)))
	fmt.Fprintf(&b, "answered    %s, %.1f/s\n", grouped(r.Answered), float64(r.Answered)/max(r.Elapsed.Seconds(), 1e-9))
	for _, code := range slices.Sorted(maps.Keys(r.Rejected)) {
		fmt.Fprintf(&b, "rejected    %s %s\n", grouped(r.Rejected[code]), code)
	}
	if r.RetryAfter > 0 {
		fmt.Fprintf(&b, "retry after at most %s\n", short(r.RetryAfter))
	}
	fmt.Fprintf(&b, "unanswered  %s\nnot sent    %s\n", grouped(r.Unanswered), grouped(r.NotSent))
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintf(&b, "refused     %s: %s\n", counted(r.Refused[reason], "connection"), reason)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Lost)) {
		fmt.Fprintf(&b, "lost        %s: close code %d\n", counted(r.Lost[code], "connection"), code)
	}
	fmt.Fprintf(&b, "latency     p50 %s  p90 %s  p99 %s  p99.9 %s  max %s\n", rounded(r.P50), rounded(r.P90), rounded(r.P99), rounded(r.P999), rounded(r.Max))
	if r.CPU >= 0 {
		fmt.Fprintf(&b, "own CPU     %.0f %% of its processors\n", r.CPU*100)
	}
	if r.CPU > maxOwnCPU {
		b.WriteString("warning: the load generator itself was short of CPU, so latencies may be its own; use another machine, or a lower rate\n")
	}
	return b.String()
}

func rounded(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func printLoadJSON(stdout io.Writer, r *load.Report) error {
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"connections": r.Connections, "elapsed": r.Elapsed.Microseconds(), "sent": r.Sent, "answered": r.Answered,
		"unanswered": r.Unanswered, "notSent": r.NotSent, "rejected": r.Rejected, "refused": r.Refused, "lost": r.Lost,
		"retryAfter": r.RetryAfter.Microseconds(), "cpu": r.CPU,
		"latency": map[string]int64{
			"p50": r.P50.Microseconds(), "p90": r.P90.Microseconds(), "p99": r.P99.Microseconds(), "p99.9": r.P999.Microseconds(), "max": r.Max.Microseconds(),
		},
	})
}
