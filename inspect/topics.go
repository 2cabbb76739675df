package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// topicQuery selects topics by the beginning of their names, or one by its name.
type topicQuery struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"` // the Next of the page before
	Name   string `json:"name,omitempty"`  // of one topic
	Hot    bool   `json:"hot,omitempty"`   // those with the most deliveries now; the other fields mean nothing
}

type topicPage struct {
	Rows []topicRow `json:"rows"`
	More bool       `json:"more"`
}

// localTopics returns the first topics of this node by name.
func (i *Inspector) localTopics(_ context.Context, q topicQuery) (page topicPage, err error) {
	found, more := i.access.Topics(q.Prefix, q.After, maxRows)
	page.More = more
	for _, t := range found {
		page.Rows = append(page.Rows, i.topicRow(t))
	}
	return page, nil
}

// listTopics returns topics with their subscribers on all nodes.
func (i *Inspector) listTopics(ctx context.Context, q topicQuery) (any, error) {
	if q.Hot {
		return i.listHot(ctx)
	}
	answers, states, err := gather[topicPage](ctx, i, askTopics, q)
	if err != nil {
		return nil, err
	}
	rows, next := mergeTopics(answers)
	return struct {
		Nodes nodeStates `json:"nodes"`
		Rows  []topicRow `json:"rows"`
		Next  string     `json:"next,omitempty"`
	}{states, rows, next}, nil
}

// mergeTopics adds what the nodes know of each topic. A node that has more topics than it has returned
// has returned maxRows, so all of its topics up to the last row of the page are known.
func mergeTopics(answers []nodeAnswer[topicPage]) (rows []topicRow, next string) {
	byName, more := map[string]topicRow{}, false
	for _, a := range answers {
		more = more || a.Result.More
		for _, t := range a.Result.Rows {
			sum := byName[t.Name]
			t.Subscribers += sum.Subscribers
			t.Members = max(t.Members, sum.Members)
			if t.Epoch == "" || t.Epoch == sum.Epoch && t.Offset < sum.Offset {
				t.Epoch, t.Offset = sum.Epoch, sum.Offset
			}
			byName[t.Name] = t
		}
	}
	for _, t := range byName {
		rows = append(rows, t)
	}
	slices.SortFunc(rows, func(a, b topicRow) int { return cmp.Compare(a.Name, b.Name) })
	if len(rows) > 0 && (more || len(rows) > maxRows) { // a node may send more without rows
		rows = firstRows(rows)
		next = rows[len(rows)-1].Name
	}
	return firstRows(rows), next
}

// topicDetails is a topic on one node.
type topicDetails struct {
	Node string `json:"node"`
	topicRow

	Present []member `json:"present"` // at most 100
}

// A member is in the presence of a topic.
type member struct {
	Conn   string `json:"conn"`
	Tenant string `json:"tenant"`
	User   string `json:"user"`
}

// localTopic returns a topic of this node, or nil if it has no subscribers here.
func (i *Inspector) localTopic(_ context.Context, q topicQuery) (*topicDetails, error) {
	found, _ := i.access.Topics(q.Name, "", 1)
	if len(found) == 0 || found[0].Name != q.Name {
		return nil, nil //nolint:nilnil // other nodes may have subscribers
	}
	d := &topicDetails{Node: i.router.NodeID(), topicRow: i.topicRow(found[0]), Present: []member{}}
	for _, m := range firstRows(i.router.Presence(q.Name)) {
		d.Present = append(d.Present, member{m.ConnID, m.TenantID, m.UserID})
	}
	return d, nil
}

// showTopic returns a topic on each node that has subscribers.
func (i *Inspector) showTopic(ctx context.Context, q topicQuery) (any, error) {
	answers, states, err := gather[*topicDetails](ctx, i, askTopic, topicQuery{Name: q.Name})
	if err != nil {
		return nil, err
	}
	rows := []*topicDetails{}
	for _, a := range answers {
		if a.Result != nil {
			rows = append(rows, a.Result)
		}
	}
	stored, problem := i.stored(ctx, q.Name)
	return struct {
		Nodes   nodeStates      `json:"nodes"`
		Rows    []*topicDetails `json:"rows"`
		Stored  storedMessages  `json:"stored"`
		Problem string          `json:"problem,omitempty"` // why Stored could not be read
	}{states, rows, stored, problem}, nil
}

// storedMessages are those in the history of a topic, the same for all nodes.
type storedMessages struct {
	Messages    uint64 `json:"messages"`
	Latest      int    `json:"latest"`      // how many of them LatestBytes counts, at most 100
	LatestBytes int64  `json:"latestBytes"` // without the overhead of the store
}

func (i *Inspector) stored(ctx context.Context, topic string) (s storedMessages, problem string) {
	ctx, cancel := context.WithTimeout(ctx, i.opts.Timeout)
	defer cancel()
	stored, err := i.access.Stored(ctx, topic)
	if err != nil {
		return s, "the history cannot be read: " + string(errors.CodeOf(err))
	}
	return storedMessages(stored), ""
}

// publication is a message to publish.
type publication struct {
	Topic   string          `json:"topic"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

func (i *Inspector) publish(_ context.Context, p publication) (any, error) {
	if i.opts.Message == nil {
		return nil, errors.Errorf(errors.Unimplemented, "nothing can be published; the application must set inspect.Options.Message")
	}
	m, err := i.opts.Message(p.Type, p.Payload)
	if err != nil {
		return nil, errors.Errorf(errors.InvalidArgument, "%v", err)
	}
	return struct{}{}, i.router.Publish(p.Topic, m)
}
