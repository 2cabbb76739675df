package inspect

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// maxAudit bounds the entries that a node keeps for the page. Options.Audit stores them for longer.
const maxAudit = 256

// An auditLog has the latest actions that were requested on this node.
type auditLog struct {
	mu      sync.Mutex
	entries []AuditEntry // the oldest first
}

func (l *auditLog) add(e AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == maxAudit {
		l.entries = slices.Delete(l.entries, 0, maxAudit/4)
	}
	l.entries = append(l.entries, e)
}

// latest returns the latest entries, the newest first.
func (l *auditLog) latest() []AuditEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := slices.Clone(l.entries[max(0, len(l.entries)-maxRows):])
	slices.Reverse(latest)
	return latest
}

func (i *Inspector) newAuditEntry(actor string, action Action, target map[string]string) AuditEntry {
	return AuditEntry{Time: time.Now(), NodeID: i.router.NodeID(), Actor: actor, Action: action, Target: target}
}

// finishAudit reports that an action has ended.
func (i *Inspector) finishAudit(ctx context.Context, e AuditEntry, err error) {
	e.Done, e.Time = true, time.Now()
	if err != nil {
		e.Error = publicText(err)
	}
	i.audit.add(e)
	_ = i.opts.Audit(context.WithoutCancel(ctx), e) // the action has been done
}

// logAudit is Options.Audit if that is nil.
func logAudit(ctx context.Context, e AuditEntry) error {
	slog.InfoContext(ctx, "inspector", "actor", e.Actor, "action", string(e.Action), "target", e.Target, "done", e.Done, "err", e.Error)
	return nil
}

// listAudit returns the latest actions of all nodes.
func (i *Inspector) listAudit(ctx context.Context, _ struct{}) (any, error) {
	answers, nodes, err := gather[[]AuditEntry](ctx, i, askAudit, nil)
	if err != nil {
		return nil, err
	}
	return struct {
		Nodes   nodeStates   `json:"nodes"`
		Entries []AuditEntry `json:"entries"`
	}{nodes, newestFirst(answers, func(e *AuditEntry) time.Time { return e.Time })}, nil
}

// newestFirst returns the rows of all nodes, at most maxRows.
func newestFirst[R any](answers []nodeAnswer[[]R], at func(*R) time.Time) []R {
	var all []R
	for _, a := range answers {
		all = append(all, a.Result...)
	}
	slices.SortStableFunc(all, func(a, b R) int { return at(&b).Compare(at(&a)) })
	return firstRows(all)
}

// firstRows returns the first maxRows rows; never nil, so that JSON has a list.
func firstRows[T any](rows []T) []T {
	if rows == nil {
		return []T{}
	}
	return rows[:min(len(rows), maxRows)]
}
