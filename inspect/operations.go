package inspect

import (
	"context"
	"encoding/json"

	"github.com/penstock-go/penstock/internal/ask"
)

// nodeReply is what package ask returns.
type nodeReply = ask.NodeAnswer

// The names of questions between nodes. A node answers those it knows, so a change of an argument
// or of a result needs a new name.
const (
	askNodes      = "nodes"
	askConns      = "conns"
	askConn       = "conn"
	askClose      = "close"
	askRefusals   = "refusals"
	askTopics     = "topics"
	askTopic      = "topic"
	askLimits     = "limits"
	askBucket     = "bucket"
	askAdmission  = "admission"
	askReset      = "reset"
	askBlock      = "block"
	askPolicy     = "policy"
	askStartTrace = "start_trace"
	askTrace      = "trace"
	askStopTrace  = "stop_trace"
	askAudit      = "audit"
)

// local returns the function that answers a question about this node, or nil.
func (i *Inspector) local(name string) func(context.Context, json.RawMessage) (any, error) {
	switch name {
	case askNodes:
		return localFunc(i.localNode)
	case askConns:
		return localFunc(i.localConns)
	case askConn:
		return localFunc(i.localConn)
	case askClose:
		return localFunc(i.localClose)
	case askRefusals:
		return localFunc(i.localRefusals)
	case askTopics:
		return localFunc(i.localTopics)
	case askTopic:
		return localFunc(i.localTopic)
	case askLimits:
		return localFunc(i.localLimits)
	case askBucket:
		return localFunc(i.localBucket)
	case askAdmission:
		return localFunc(i.localAdmission)
	case askReset:
		return localFunc(i.localReset)
	case askBlock:
		return localFunc(i.localBlock)
	case askPolicy:
		return localFunc(i.localPolicy)
	case askStartTrace:
		return localFunc(i.localStartTrace)
	case askTrace:
		return localFunc(i.localTrace)
	case askStopTrace:
		return localFunc(i.localStopTrace)
	case askAudit:
		return localFunc(func(context.Context, struct{}) ([]AuditEntry, error) { return i.audit.latest(), nil })
	}
	return nil
}

// operation returns what an action of the API does.
func (i *Inspector) operation(action Action) (op operation, known bool) {
	reads := map[Action]func(context.Context, string, json.RawMessage) (any, error){
		ViewNodes: i.listNodes, ViewConns: i.listConns, ViewConn: i.showConn, ViewRefusals: i.listRefusals,
		ViewAdmission: i.showAdmission, ViewTopics: i.listTopics, ViewTopic: i.showTopic, ViewLimits: i.listLimits,
		ViewBucket: i.showBucket, ViewTrace: i.readTrace, ViewAudit: i.listAudit,
	}
	if run := reads[action]; run != nil {
		return operation{run: run}, true
	}
	changes := map[Action]func(context.Context, string, json.RawMessage) (any, error){
		Disconnect: i.disconnect, EndSession: i.endSession, DisconnectUser: i.disconnectUser, Revoke: i.revoke,
		Publish: i.publish, ResetKey: i.resetKey, BlockKey: i.blockKey,
		PreviewPolicy: i.previewPolicy, ApplyPolicy: i.applyPolicy, ConfirmPolicy: i.confirmPolicy, ReturnPolicy: i.returnPolicy,
		StartTrace: i.startTrace, StopTrace: i.stopTrace,
	}
	run := changes[action]
	return operation{run: run, target: auditTarget}, run != nil
}

// auditTarget returns the members of an argument that are texts or numbers. The payload of a
// publication is neither.
func auditTarget(arg json.RawMessage) map[string]string {
	var members map[string]any
	target := map[string]string{}
	if json.Unmarshal(arg, &members) != nil {
		return target
	}
	for name, value := range members {
		switch value.(type) {
		case string, float64, bool, []any:
			if text, err := json.Marshal(value); err == nil && name != "payload" {
				target[name] = unquote(text)
			}
		}
	}
	return target
}

// unquote returns the text of a JSON string, and other JSON as it is, at most 256 bytes.
func unquote(text []byte) string {
	var s string
	if json.Unmarshal(text, &s) != nil {
		s = string(text)
	}
	return truncate(s, 256)
}
