package router

import (
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/rules"
)

// refreshIdentity calls Options.Authenticate with a token that the client has sent, and changes
// the identity of the connection if the user stays the same. The route is serial, so a connection
// authenticates once at a time.
func (r *Router) refreshIdentity(ctx *Context, m protocol.Auth) (protocol.Authenticated, error) {
	if r.opts.Authenticate == nil {
		return protocol.Authenticated{}, errors.Errorf(errors.Unimplemented, "this server does not authenticate")
	}
	if m.Token == "" {
		return protocol.Authenticated{}, errors.InvalidField("token", "must not be empty")
	}
	if err := ctx.conn.beginAuth(); err != nil {
		return protocol.Authenticated{}, err
	}
	failed := true // unless it returns: a panic counts
	defer func() { ctx.conn.endAuth(failed) }()
	since := r.access.Now()
	id, err := r.opts.Authenticate(ctx.authenticationRequest(m.Token))
	if err == nil {
		err = ctx.Err() // the call has been answered, so its result must not take effect
	}
	if err == nil {
		err = ctx.conn.changeIdentity(ctx, id, since, id.mayReplace)
	}
	if err != nil {
		if failed = !isRetryable(err); failed { // otherwise it says nothing about the token
			_ = rules.Sleep(ctx, failedAuthDelay)
		}
		return protocol.Authenticated{}, err
	}
	failed = false
	if id.ExpiresAt.IsZero() {
		return protocol.Authenticated{}, nil
	}
	return protocol.Authenticated{ExpiresInMs: max(1, id.remaining(time.Now()).Milliseconds())}, nil
}

func isRetryable(err error) bool {
	e, ok := failure.AsType[*errors.Error](err)
	return ok && e != nil && e.Retryable()
}

// mayReplace returns an error if a client may not replace its current identity by id.
func (id Identity) mayReplace(current Identity) error {
	switch {
	case current.UserID != "" && current.user() != id.user():
		return errors.Errorf(errors.PermissionDenied, "the token is of another user; connect again to change the user")
	case current.TenantID != "" && current.TenantID != id.TenantID: // it would keep the topics of the tenant
		return errors.Errorf(errors.PermissionDenied, "the token is of another tenant; connect again to change the tenant")
	}
	return nil
}

// authenticationRequest returns a request for Options.Authenticate. Its context is that of the
// call, so it is canceled at the deadline and when the connection is closed.
func (c *Context) authenticationRequest(token string) *http.Request {
	req := &http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Path: "/", RawQuery: url.Values{"access_token": {token}}.Encode()},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{},
		Body:   http.NoBody,
	}
	if ip := c.conn.ip; ip.IsValid() {
		req.RemoteAddr = netip.AddrPortFrom(ip, 0).String()
	}
	return req.WithContext(c)
}
