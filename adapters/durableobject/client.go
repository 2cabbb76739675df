package durableobject

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
)

// maxReplyBytes bounds a reply of the Worker. Its largest has 512 numbers.
const maxReplyBytes = 64 << 10

// A Client sends requests to the Worker. Limiters and semaphores share it; calls of all limiters
// that wait at the same time share requests. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	host   string
	header http.Header
	prefix string // of all names: the namespace

	limitURL, semaphoreURL *url.URL

	calls *batch.Batcher[[]part, reply] // of all limiters
	now   func() time.Duration
}

// Options are options of a [Client]. The zero Options are valid.
type Options struct {
	// HTTPClient sends the requests. Redirects are not followed, whatever its CheckRedirect
	// says. If nil, a client with HTTP/1.1 is used: it closes the connection of a request that
	// failed, so a dead connection does not delay further requests.
	HTTPClient *http.Client

	// Namespace separates applications, or copies of one such as production and staging, that share
	// a Worker: its limiters and semaphores share nothing with those of another one, or of none. It
	// has up to 64 letters, digits, dots, hyphens and underscores.
	Namespace string
}

// NewClient returns a client of the Worker at baseURL, such as
// "https://limits.example.workers.dev", with one of the Worker's secrets. It panics if the URL is
// not that of an HTTP server or the secret is not printable ASCII without spaces. If options is
// nil, the defaults apply. It does not connect to the Worker.
//
// The secret is sent with every request: use https, except on the same machine.
func NewClient(baseURL, secret string, options *Options) *Client {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil, base.Scheme != "https" && base.Scheme != "http", base.Host == "":
		panic(fmt.Sprintf("durableobject: NewClient needs the URL of the Worker, such as https://limits.example.workers.dev; it is %q", baseURL))
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		panic("durableobject: the URL of the Worker must have no user, query or fragment")
	case !isToken(secret):
		panic("durableobject: NewClient needs the secret of the Worker: printable ASCII without spaces")
	}
	if base.Path == "" {
		base.Path = "/" // without it, JoinPath returns a path that is not absolute
	}
	epoch := time.Now()
	c := &Client{
		host: base.Host,
		header: http.Header{
			"Authorization": {"Bearer " + secret},
			"Content-Type":  {"application/json"},
			"User-Agent":    {"penstock"}, // some firewalls reject that of net/http
		},
		limitURL:     base.JoinPath("v2/limit"),
		semaphoreURL: base.JoinPath("v2/semaphore"),
		now:          func() time.Duration { return time.Since(epoch) },
	}
	c.calls = batch.New("durableobject: limiter", batch.LimiterTimeout, c.exec, true)
	given := newHTTPClient()
	if options != nil && options.HTTPClient != nil {
		given = options.HTTPClient
	}
	if options != nil && options.Namespace != "" {
		if err := keyname.CheckNamespace(options.Namespace); err != nil {
			panic("durableobject: Options.Namespace: " + err.Error())
		}
		c.prefix = "{" + options.Namespace + "}" // no other part of a key contains braces
	}
	withoutRedirects := *given
	withoutRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &withoutRedirects
	return c
}

func isToken(secret string) bool {
	for i := range len(secret) {
		if secret[i] <= ' ' || secret[i] > '~' {
			return false
		}
	}
	return secret != ""
}

// newHTTPClient returns a client with HTTP/1.1. It copies nothing of http.DefaultTransport, whose
// TLS configuration asks for HTTP/2.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:           protocols,
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true, // replies are short
	}}
}

// post sends a request once, and decodes a reply with status 200. Any other reply is an error. The
// Worker may have executed the request nevertheless.
func (c *Client) post(ctx context.Context, to *url.URL, body []byte, reply any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, batch.LimiterTimeout)
		defer cancel()
	}
	response, err := c.http.Do(c.request(ctx, to, body))
	if err != nil {
		return err
	}
	defer drain(response.Body)
	content, err := io.ReadAll(io.LimitReader(response.Body, maxReplyBytes+1))
	switch {
	case response.StatusCode != http.StatusOK:
		return c.statusError(response.StatusCode, content)
	case err != nil:
		return fmt.Errorf("read the reply of %s: %w", c.host, err)
	case len(content) > maxReplyBytes:
		return fmt.Errorf("the reply of %s is longer than %d bytes, so it is not the Worker's", c.host, maxReplyBytes)
	case !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json"):
		return fmt.Errorf("the reply of %s is not JSON, so it is not the Worker's", c.host)
	}
	if err := json.Unmarshal(content, reply); err != nil {
		return fmt.Errorf("the reply of %s is not the Worker's: %w", c.host, err)
	}
	return nil
}

// request has no GetBody and no Idempotency-Key: with either, net/http would send a request again
// that may have been executed, after a connection or a stream was closed.
func (c *Client) request(ctx context.Context, to *url.URL, body []byte) *http.Request {
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           to,
		Host:          c.host,
		Header:        c.header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	return r.WithContext(ctx)
}

// drain reads what is left of a body, up to a bound, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxReplyBytes))
	_ = body.Close()
}

// statusError returns an error about a reply that is not a decision. It contains nothing of the
// reply but known words: a proxy may have copied the secret into it.
func (c *Client) statusError(status int, content []byte) error {
	text := fmt.Sprintf("%s answered with status %d", c.host, status)
	if hint := statusHint(status, content); hint != "" {
		text += "; " + hint
	}
	return errors.New(text)
}

func statusHint(status int, content []byte) string {
	switch {
	case status == http.StatusUnauthorized:
		return "the secret must be SECRET or SECRET_NEXT of the Worker"
	case status == http.StatusNotFound:
		return "the URL must be that of the Worker, of this version"
	case status == http.StatusBadRequest:
		return "the Worker must be of this version"
	case status/100 == 3:
		return "redirects are not followed; use the Worker's own URL"
	case status == http.StatusTooManyRequests:
		return "Cloudflare limits the requests to the Worker; this says nothing about the key"
	case status == http.StatusServiceUnavailable && bytes.Contains(content, []byte(`"overloaded"`)):
		return "the Durable Object is overloaded; more SHARDS divide its load"
	case status == http.StatusServiceUnavailable && bytes.Contains(content, []byte(`"unavailable"`)):
		return "the Durable Object is unavailable"
	default:
		return ""
	}
}
