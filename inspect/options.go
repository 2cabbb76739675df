package inspect

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// An Action is what a request to the inspector does. It is the last part of the path of the API:
// "conns" for api/conns.
type Action string

// The actions that change nothing.
const (
	ViewPage      Action = "page"      // load the page and its files
	ViewNodes     Action = "nodes"     // list the nodes
	ViewConns     Action = "conns"     // list connections, and find those of a user, an address or an ID
	ViewConn      Action = "conn"      // see the topics, calls and limits of a connection
	ViewRefusals  Action = "refusals"  // see why clients were refused
	ViewAdmission Action = "admission" // see whether the next message of a client would be admitted
	ViewTopics    Action = "topics"    // list topics with subscribers
	ViewTopic     Action = "topic"     // see the subscribers per node and the presence of a topic
	ViewLimits    Action = "limits"    // list the limits
	ViewBucket    Action = "bucket"    // see the tokens of a key
	ViewTrace     Action = "trace"     // read what a trace has recorded
	ViewPayloads  Action = "payloads"  // see payloads in a trace, if Options.Redact is set; asked in addition to StartTrace and ViewTrace
	ViewAudit     Action = "audit"     // list the latest actions
)

// The actions that change something. Each is audited.
const (
	Disconnect     Action = "disconnect"      // close a connection, whose client may resume its session
	EndSession     Action = "end_session"     // close a connection, and end its session
	DisconnectUser Action = "disconnect_user" // close all connections of a user, and end all sessions
	Revoke         Action = "revoke"          // end the access of a user to a topic or a pattern of topics
	Publish        Action = "publish"         // publish a message; see Options.Message
	ResetKey       Action = "reset"           // fill the bucket of a key, and end its block
	BlockKey       Action = "block"           // deny everything to a key for some time
	PreviewPolicy  Action = "preview"         // count what another policy would deny
	ApplyPolicy    Action = "apply"           // change a policy on all nodes, for some minutes
	ConfirmPolicy  Action = "confirm"         // keep the policy that was applied
	ReturnPolicy   Action = "return"          // return to the policy before
	StartTrace     Action = "start_trace"     // record messages of a user, a connection or a type
	StopTrace      Action = "stop_trace"      // stop a trace
)

// Options configure an Inspector. Authorize is required.
type Options struct {
	// Authorize decides whether a request may do something, and returns the name of who does it,
	// for the audit log. An error refuses the request: with 401 if its code is UNAUTHENTICATED, and
	// otherwise with 403. The client does not receive the error. It is called for each request,
	// concurrently, and before the request's body is read.
	Authorize func(*http.Request, Action) (actor string, err error)

	// Hosts are the names under which operators reach the inspector, such as "ops.example.com" or
	// "localhost:9090"; one without a port stands for all ports. Requests for other hosts receive 421. A
	// page whose name an attacker lets point to the address of the inspector (DNS rebinding) would be of
	// the same origin otherwise. If it is empty, all hosts are accepted: Authorize must then demand
	// credentials that browsers send to the inspector's own names only, such as a cookie or a password,
	// and not rely on the address of the client or on a certificate. Behind a reverse proxy, they are the
	// names that it passes on.
	Hosts []string

	// Audit is called before an action changes anything, and again with Done when it has ended. An
	// error of the first call refuses the action. If nil, the entries are logged with
	// slog.Default().
	Audit func(context.Context, AuditEntry) error

	// Limits are what the pages about limits show. All nodes should have the same.
	Limits []Limit

	// Message returns the message to publish for a type and its payload as JSON: usually, by
	// decoding it into a message of the application. An error refuses the request, whose client
	// receives its text. If nil, nothing can be published.
	Message func(messageType string, payload []byte) (router.Message, error)

	// Redact returns what traces show of a decoded message: a copy without secrets. The result must
	// be one that encoding/json encodes, and the first KiB of that is shown. If nil, traces show no
	// payloads.
	Redact func(router.Message) any

	// RefusalText returns what the inspector shows of a refusal besides its code, stage and limit:
	// Refusal.Err may contain secrets. If nil, it shows nothing else.
	RefusalText func(router.Refusal) string

	// Timeout bounds how long the inspector waits for other nodes; 1 s if it is 0.
	Timeout time.Duration
}

// A Limit is a limiter that the inspector shows.
type Limit struct {
	Name    string // unique, and the same on all nodes
	Limiter limit.Limiter

	// Key and Cost are those of the limit's ratelimit.Options: which bucket a message of a client
	// is charged to, and how much. A Cost of 0 means that the limit does not apply. If Key is nil,
	// the limit is not part of the answer to whether a client would be admitted, and its policies
	// have no preview. If Cost is nil, it is 1.
	Key  func(router.IngressContext) limit.Key
	Cost func(router.IngressContext) int64
}

// An AuditEntry describes an action that changes something. It contains no payloads.
type AuditEntry struct {
	Time   time.Time         `json:"time"`
	NodeID string            `json:"node"` // on which the request arrived
	Actor  string            `json:"actor"`
	Action Action            `json:"action"`
	Target map[string]string `json:"target"` // what the action concerns, such as "user"
	Done   bool              `json:"done"`   // false before the action, true after it
	Error  string            `json:"error,omitempty"`
}
