package cluster_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

func lose(f *enginetest.Faults)        { f.Lose = true }
func failPublish(f *enginetest.Faults) { f.FailPublish = true }
func disconnect(f *enginetest.Faults)  { f.Disconnect = true }
func none(f *enginetest.Faults)        { *f = enginetest.Faults{} }

// TestNode_Losses runs testdata/losses.txt: "NODE WORD ARGUMENT..." with "=>" and what is expected, "wait DURATION", and
// "N times: STEPS".
func TestNode_Losses(t *testing.T) {
	text, err := os.ReadFile("testdata/losses.txt")
	require.NoError(t, err)
	for _, scenario := range strings.Split(string(text), "\n== ")[1:] {
		title, steps, _ := strings.Cut(scenario, "\n")
		t.Run(title, func(t *testing.T) {
			run(t, func(t *testing.T, network *enginetest.Network) {
				l := &losses{t: t, network: network, nodes: map[string]*node{}}
				l.nodes["a"], l.nodes["b"] = connectPair(t, network)
				for line := range strings.Lines(steps) {
					line, _, _ = strings.Cut(line, "#")
					l.line = line
					n, repeated, many := strings.Cut(line, " times: ")
					times, err := strconv.Atoi(n)
					if !many || err != nil {
						times, repeated = 1, line
					}
					for range times {
						for step := range strings.SplitSeq(repeated, ";") {
							l.do(step)
						}
					}
				}
			})
		})
	}
}

type losses struct {
	t       *testing.T
	network *enginetest.Network
	nodes   map[string]*node
	line    string
}

func (l *losses) do(step string) {
	step, want, _ := strings.Cut(step, "=>")
	words := strings.Fields(step)
	if len(words) < 2 {
		return
	}
	if words[0] == "wait" {
		d, err := time.ParseDuration(words[1])
		require.NoError(l.t, err)
		time.Sleep(d)
		return
	}
	if l.nodes[words[0]] == nil {
		l.nodes[words[0]] = connect(l.t, l.network)
	}
	n := l.nodes[words[0]]
	faults := map[string]func(*enginetest.Faults){
		"works": none, "lose": lose, "fail": failPublish, "disconnect": disconnect,
		"duplicate": func(f *enginetest.Faults) { f.Duplicate = true },
		"deaf":      func(f *enginetest.Faults) { f.Deaf = true },
		"short":     func(f *enginetest.Faults) { f.MaxBytes = 1000 },
	}
	got := ""
	switch word := words[1]; word {
	case "publish":
		for _, text := range words[2:] {
			n.publish(l.t, strings.ReplaceAll(text, "toolong", string(make([]byte, 2000))))
		}
	case "subscribe":
		n.Subscribe("news")
		time.Sleep(time.Millisecond)
	case "unsubscribe":
		n.Unsubscribe("news")
	case "close":
		require.NoError(l.t, n.Close(l.t.Context()))
	case "received":
		got = strings.ReplaceAll(strings.Join(n.packets(), " "), "news ", "")
	case "packets":
		got = fmt.Sprint(len(n.packets()))
	case "lost":
		got = strings.ReplaceAll(strings.Join(n.lost(), " "), "news ", "")
	case "subscribed":
		got = fmt.Sprint(len(n.subscriptions()))
	case "left":
		got = strings.ReplaceAll(strings.Join(n.failures(), " "), l.nodes["a"].Name(), "a")
	default:
		require.Contains(l.t, faults, word, l.line)
		n.update(faults[word])
	}
	assert.Equal(l.t, strings.TrimSpace(want), got, l.line)
}

// TestNode_ReportsOutageOncePerTopic lets 15 publishers use 2,000 topics during an outage. Some
// publish again only long after it.
func TestNode_ReportsOutageOncePerTopic(t *testing.T) {
	const topics, publishers = 2000, 15
	run(t, func(t *testing.T, network *enginetest.Network) {
		subscriber := connect(t, network)
		var nodes []*node
		for range publishers {
			nodes = append(nodes, connect(t, network))
		}
		publish := func(n *node) {
			for topic := range topics {
				require.NoError(t, n.Publish(fmt.Sprint(topic), []byte("packet")))
			}
			synctest.Wait()
		}
		for topic := range topics {
			subscriber.Subscribe(fmt.Sprint(topic))
		}
		time.Sleep(3 * time.Second)
		for _, n := range nodes {
			publish(n)
		}
		subscriber.update(disconnect)
		for _, n := range nodes {
			publish(n)
		}
		time.Sleep(2 * time.Second)
		subscriber.update(none)
		for _, n := range nodes[:publishers/2] {
			publish(n)
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes[publishers/2:] {
			publish(n)
		}
		time.Sleep(10 * time.Second)
		assert.Len(t, subscriber.lost(), topics)
		assert.Len(t, subscriber.packets(), 2*publishers*topics)
	})
}
