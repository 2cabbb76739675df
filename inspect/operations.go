package inspect

import (
	"context"
	"encoding/json"
)

// The names of questions between nodes. A node answers those it knows, so a change of an argument
// or of a result needs a new name, unless it only adds members that may be absent.
const (
	askNodes      = "nodes"
	askConns      = "conns"
	askConn       = "conn"
	askClose      = "close"
	askRefusals   = "refusals"
	askTopics     = "topics"
	askTopic      = "topic"
	askHot        = "hot"
	askDenied     = "denied"
	askLimits     = "limits"
	askBucket     = "bucket"
	askAdmission  = "decisions"
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
	case askHot:
		return localFunc(i.localHot)
	case askDenied:
		return localFunc(i.localDenied)
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
	op, known = map[Action]operation{
		ViewNodes: reads(i.listNodes), ViewConns: reads(i.listConns), ViewConn: reads(i.showConn), ViewRefusals: reads(i.listRefusals),
		ViewAdmission: reads(i.showAdmission), ViewTopics: reads(i.listTopics), ViewTopic: reads(i.showTopic), ViewLimits: reads(i.listLimits),
		ViewBucket: reads(i.showBucket), ViewTrace: reads(i.readTrace), ViewAudit: reads(i.listAudit),

		Disconnect: changes(i.disconnect), EndSession: changes(i.endSession), DisconnectUser: changes(i.disconnectUser), Revoke: changes(i.revoke),
		Publish: changes(i.publish), ResetKey: changes(i.resetKey), BlockKey: changes(i.blockKey),
		PreviewPolicy: changes(i.previewPolicy), ApplyPolicy: changes(i.applyPolicy), ConfirmPolicy: changes(i.confirmPolicy), ReturnPolicy: changes(i.returnPolicy),
		StartTrace: changes(i.startTrace), StopTrace: changes(i.stopTrace),
	}[action]
	return op, known
}

// auditTarget returns the members of an argument, as it was understood, that are texts or numbers and not empty. The
// payload of a publication is neither.
func auditTarget(arg any) map[string]string {
	var members map[string]any
	target := map[string]string{}
	text, err := json.Marshal(arg)
	if err != nil || json.Unmarshal(text, &members) != nil {
		return target
	}
	for name, value := range members {
		switch value {
		case "", 0.0, false:
			continue
		}
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
