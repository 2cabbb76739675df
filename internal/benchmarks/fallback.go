package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/router"
)

const (
	fallbackConns   = 2000 // idle
	fallbackCallers = 64   // each with one call in flight
	fallbackCalls   = 200  // of each
)

// fallbackProtocols are how clients connect whose network blocks WebSocket, and WebSocket itself.
var fallbackProtocols = []string{"WebSocket", "HTTP/1.1", "HTTP/2"}

// fallback measures what a connection over HTTP takes, and what its messages cost, without TLS.
func fallback(cfg config) {
	title := fmt.Sprintf("%d idle connections with a response in mode stream: bytes per connection, and goroutines", fallbackConns)
	idle := newTable(title, "%.1f", "RSS", "heap", "stack", "goroutines").named("fallback")
	title = fmt.Sprintf("CPU of the server per call and reply, %d connections with 1 in flight: microseconds", fallbackCallers)
	calls := newTable(title, "%.1f", "CPU").named("fallback")
	for range cfg.passes {
		for _, protocol := range fallbackProtocols {
			p := start(variant("fallback"), setup{})
			measureFallback(p, protocol, idle, calls)
			p.stop()
		}
	}
	idle.print()
	calls.print()
	calls.printRatiosOf("ratio to WebSocket", "WebSocket", "%s / WebSocket", ratios)
}

func measureFallback(p *process, protocol string, idle, calls *table) {
	callers := openFallback(p, protocol, fallbackCallers) // which are also what has to be allocated once
	callAll(callers)
	before := p.command("stats")
	callAll(callers)
	after := p.command("stats")
	calls.add(protocol, "CPU", (after.CPU-before.CPU).Seconds()*1e6/(fallbackCallers*fallbackCalls))

	before = p.command("collect")
	openFallback(p, protocol, fallbackConns)
	after = p.command("collect")
	idle.add(protocol, "RSS", float64(after.RSS-before.RSS)/fallbackConns)
	idle.add(protocol, "heap", (float64(after.Heap)-float64(before.Heap))/fallbackConns)
	idle.add(protocol, "stack", (float64(after.Stack)-float64(before.Stack))/fallbackConns)
	idle.add(protocol, "goroutines", float64(after.Goroutines-before.Goroutines)/fallbackConns)
}

// openFallback returns functions that each send a call over a connection of its own and wait for the reply. The
// connections are open until the server ends.
func openFallback(p *process, protocol string, n int) []func() {
	callers := make([]func(), n)
	for i := range callers {
		if protocol == "WebSocket" {
			cl := exchange(p, variant("fallback"))
			callers[i] = func() {
				_, err := cl.conn.Write(masked(say(0)))
				check(err)
				check(cl.await(1))
			}
			continue
		}
		callers[i] = openOverHTTP(p, protocol).call
		callers[i]()
	}
	return callers
}

func callAll(callers []func()) {
	var wg sync.WaitGroup
	for _, call := range callers {
		wg.Go(func() {
			for range fallbackCalls {
				call()
			}
		})
	}
	wg.Wait()
}

// An httpClient is a connection over HTTP, with TCP connections of its own, as that of a browser.
type httpClient struct {
	http   *http.Client
	url    string
	secret string
	events *bufio.Scanner
	seq    int
}

func openOverHTTP(p *process, protocol string) *httpClient {
	transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	c := &httpClient{http: &http.Client{Transport: transport}, url: "http://" + p.addr + "/ws/http"}
	c.events = bufio.NewScanner(c.post("open", `{"mode":"stream"}`))
	var opened struct{ Secret string }
	check(json.Unmarshal([]byte(c.data()), &opened))
	c.secret = opened.Secret
	return c
}

func (c *httpClient) post(operation, body string) io.Reader {
	resp, err := c.http.Post(c.url+"?"+operation, "text/plain;charset=UTF-8", strings.NewReader(body))
	check(err)
	if resp.StatusCode >= http.StatusMultipleChoices {
		fatal(fmt.Errorf("%s: %s", operation, resp.Status))
	}
	return resp.Body
}

// data returns the data of the next event.
func (c *httpClient) data() string {
	for c.events.Scan() {
		if data, ok := bytes.CutPrefix(c.events.Bytes(), []byte("data: ")); ok {
			return string(data)
		}
	}
	check(c.events.Err())
	fatal(io.ErrUnexpectedEOF)
	return ""
}

func (c *httpClient) call() {
	c.seq++
	c.post("up", fmt.Sprintf("{\"secret\":%q,\"seq\":%d,\"ack\":%d}\n%s", c.secret, c.seq, c.seq-1, say(0)))
	c.data()
}

// serveFallback serves WebSockets, and connections over HTTP at /ws/http.
func serveFallback() (http.Handler, func(int)) {
	handler, publish := serveOptions(&router.Options{})
	mux := http.NewServeMux()
	mux.Handle("/ws", handler)
	mux.Handle("/ws/http", handler.(*router.Router).HTTPFallback(&router.FallbackOptions{MaxConns: 4 * fallbackConns}))
	return mux, publish
}
