package durablestreams

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-go/penstock/clientip"
)

// Options configure a handler. Message is the type of the items of a run, or [router.StoredMessage].
type Options[Message any] struct {
	// Topic returns the topic that a request reads, such as "answer/" + req.PathValue("chat"). It is required.
	Topic func(req *http.Request) string

	// Authorize returns an error unless the request may read the topic. The client then receives 404, as if
	// there were no such stream. It is asked for each request, and so again for a reader by SSE after a minute at
	// the latest. If Router.Revoke or Router.DisconnectUser is called for any user meanwhile, it is asked again before
	// anything else is sent. It is required.
	Authorize func(req *http.Request, topic string) error

	// ContentType is that of the streams; application/json if "". Messages of a JSON stream are returned
	// in arrays, and those of others as adjacent bytes.
	ContentType string

	// Encode returns the bytes of a message; its JSON if nil. An item of a run is encoded as Encode returns
	// it, and a stored message as an object with its type and its payload.
	Encode func(Message) ([]byte, error)

	// Origins are the origins of pages that may read streams from another host, such as
	// "https://app.example.com". "*" is every origin, without cookies.
	Origins []string

	// Proxies are trusted to report the addresses of clients.
	Proxies clientip.TrustedProxies

	// MaxReaders bounds the requests that are served at the same time, and MaxPerAddress those of one client
	// address, an IPv4 address or a /64 of IPv6. Others receive 429. 1,000 and 50 if 0.
	MaxReaders    int
	MaxPerAddress int

	// MaxBytes is at how many bytes of messages a response ends, or an event of SSE. One message that is longer
	// is returned alone. 1 MiB if 0.
	MaxBytes int

	// PollTimeout is how long a long poll waits for messages, and how often a reader by SSE receives an event. 20 s
	// if 0.
	PollTimeout time.Duration
}

func (o *Options[Message]) setDefaults() {
	o.ContentType = cmp.Or(o.ContentType, "application/json")
	o.MaxReaders = cmp.Or(o.MaxReaders, 1000)
	o.MaxPerAddress = cmp.Or(o.MaxPerAddress, 50)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<20)
	o.PollTimeout = cmp.Or(o.PollTimeout, 20*time.Second)
}

func (o *Options[Message]) mustBeValid() {
	switch {
	case o.Topic == nil:
		panic("durablestreams: Options.Topic is nil; it must return the topic of a request")
	case o.Authorize == nil:
		panic("durablestreams: Options.Authorize is nil; it must decide which requests may read")
	case min(o.MaxReaders, o.MaxPerAddress, o.MaxBytes) < 1:
		panic("durablestreams: MaxReaders, MaxPerAddress and MaxBytes of Options must not be negative")
	case o.PollTimeout < 0:
		panic(fmt.Sprintf("durablestreams: Options.PollTimeout is %v; it must not be negative", o.PollTimeout))
	}
	if err := o.Proxies.Validate(); err != nil {
		panic("durablestreams: Options.Proxies: " + err.Error())
	}
}

// mediaType returns a content type in lower case and without parameters.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}
