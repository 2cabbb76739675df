package aisdk

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// An Action is what a page asks for.
type Action string

// The actions. Their values are those of [router.IngressContext] Type for Options.Ingress.
const (
	ActionSend   Action = "send"   // to start a run
	ActionResume Action = "resume" // to attach to the latest run
	ActionAbort  Action = "abort"  // to stop the run of a send or a resume
)

// An Access is what Options.Authorize decides about.
type Access struct {
	Action   Action
	Chat     string
	Identity router.Identity
}

// Options configure a Handler. Authorize, Topic and Answer are required.
type Options struct {
	// Authenticate returns the identity of a handshake; see Options.Authenticate of package router.
	// If nil, every connection is anonymous. The connection is closed with 4401 when the identity
	// expires.
	Authenticate func(*http.Request) (router.Identity, error)

	// Authorize returns an error if a page may not do it. A send is then answered with the public
	// part of the error, a resume with PERMISSION_DENIED as if there were no run, and an abort only
	// detaches its own page.
	Authorize func(ctx context.Context, a Access) error

	// Topic returns the topic of a chat, which the pattern of the runs matches. Users may choose
	// the same ID for their chats: a topic that contains the user keeps them apart.
	Topic func(id router.Identity, chat string) string

	// Start returns what the run of a send begins with: its budget, for example. Its RequestID is
	// replaced. An error answers the send. If nil, runs begin without a budget.
	Start func(ctx context.Context, req *Request) (*run.StartOptions, error)

	// Answer is the producer of a run. See Runs.Start of package run for its context, and for
	// errors.
	Answer func(ctx context.Context, req *Request, out *Output) error

	// AbortDetaches makes an abort end only what its own page receives, even if the run could be stopped: for pages
	// that stop runs in another way, because the AI SDK also sends an abort when a component is
	// unmounted.
	AbortDetaches bool

	// Ingress admits sends and resumes before their payload is parsed; see [router.IngressFunc] and
	// package middleware/ratelimit. The page receives the error for its request. If nil, they are
	// not limited.
	Ingress router.IngressFunc

	// OnLimitExceeded is called for each request that exceeds Limits.Requests, or for which Ingress
	// returns a [*router.LimitExceeded]. Its Conn is nil. It must not block. If nil, it is not
	// called.
	OnLimitExceeded func(Access, router.LimitExceeded)

	// Origins lists the web pages that may connect, in addition to those of the server's own host;
	// see Options.Origins of package router.
	Origins []string

	// TrustedProxies configures the reverse proxies that report the client's address.
	TrustedProxies clientip.TrustedProxies

	Limits Limits

	// PingInterval is the time between two pings, which keep proxies from closing a connection
	// while a model thinks. A client that does not answer a ping, or does not take a frame, for
	// twice as long is disconnected. 20 s if 0.
	PingInterval time.Duration
}

// Limits bound what a connection may use.
type Limits struct {
	FrameBytes int64 // of a frame of the page, which has the whole conversation; 1 MiB if 0
	Requests   int   // sends and resumes of a connection that have not ended; 100 if 0
}

func (o *Options) setDefaults() {
	if o.Limits.FrameBytes == 0 {
		o.Limits.FrameBytes = 1 << 20
	}
	if o.Limits.Requests == 0 {
		o.Limits.Requests = 100
	}
	if o.PingInterval == 0 {
		o.PingInterval = 20 * time.Second
	}
	if o.Authenticate == nil {
		o.Authenticate = func(*http.Request) (router.Identity, error) { return router.Identity{}, nil }
	}
	if o.Start == nil {
		o.Start = func(context.Context, *Request) (*run.StartOptions, error) { return nil, nil } //nolint:nilnil // no options
	}
	if o.Ingress == nil {
		o.Ingress = func(context.Context, router.IngressContext) error { return nil }
	}
	if o.OnLimitExceeded == nil {
		o.OnLimitExceeded = func(Access, router.LimitExceeded) {}
	}
}

func (o *Options) mustBeValid() {
	switch {
	case o.Authorize == nil || o.Topic == nil || o.Answer == nil:
		panic("aisdk: Options need Authorize, Topic and Answer")
	case o.Limits.FrameBytes < 0 || o.Limits.Requests < 0 || o.PingInterval < 0:
		panic(fmt.Sprintf("aisdk: Options.Limits %+v or PingInterval %v is negative", o.Limits, o.PingInterval))
	}
	if err := o.TrustedProxies.Validate(); err != nil {
		panic("aisdk: " + err.Error())
	}
}
