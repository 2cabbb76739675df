//go:build unix

// The files versions_*_test.go test that nodes of two versions work together: the last release and the present code
// share one Redis server.

package faults_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/internal/versions"
)

// beforeFirstRelease is the other version until there is a release: the commit before sessions
// became one state machine (internal/session), because that changed most of what nodes share.
const beforeFirstRelease = "a9458e3878a045f0db0fb24888b11de20843e279"

// lastRelease returns the tag of the last release before HEAD, or another revision if there is
// none. It is "" if the repository does not have that one: in a shallow clone, or an archive.
func lastRelease(ctx context.Context, root, otherwise string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*.[0-9]*.[0-9]*", "HEAD^"); err == nil {
		return tag
	}
	if _, err := git("cat-file", "-e", otherwise+"^{commit}"); err != nil {
		return ""
	}
	return otherwise
}

func TestLastRelease(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	root := t.TempDir()
	git := func(args ...string) {
		command(t, "git", append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	}
	assert.Empty(t, lastRelease(t.Context(), root, "HEAD"), "not a repository")
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	assert.Empty(t, lastRelease(t.Context(), root, strings.Repeat("1", 40)), "a commit that is missing")
	assert.Equal(t, "HEAD", lastRelease(t.Context(), root, "HEAD"))
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		git("tag", version)
		git("tag", "otel/"+version)
		git("commit", "-q", "--allow-empty", "-m", "next")
		assert.Equal(t, version, lastRelease(t.Context(), root, "HEAD"))
	}
	git("tag", "v0.3.0")
	assert.Equal(t, "v0.2.0", lastRelease(t.Context(), root, "HEAD"), "HEAD is v0.3.0")
}

// TestVersions_ShareCluster runs a node of the last release beside one of the present code.
func TestVersions_ShareCluster(t *testing.T) {
	testscale.FullOnly(t, "TestLastRelease")
	const root = "../.."
	revision := lastRelease(t.Context(), root, beforeFirstRelease)
	if revision == "" {
		t.Skip("the history of this repository has neither a release nor commit " + beforeFirstRelease[:8])
	}
	redis := redistest.Start(t).Addr
	sources := checkOut(t, root, revision)
	if _, err := os.Stat(filepath.Join(sources, program)); err != nil { // that revision is older than the program
		require.NoError(t, os.CopyFS(filepath.Join(sources, filepath.Dir(program)), os.DirFS(filepath.Join(root, filepath.Dir(program)))))
	}
	old := startNode(t, buildNode(t, sources), redis)
	present := startNode(t, buildNode(t, root), redis)
	waitForEachOther(t, old, present)
	t.Logf("the other version is %s", revision)
	for name, pair := range map[string][2]*process{"from old to present": {old, present}, "from present to old": {present, old}} {
		t.Run(name, func(t *testing.T) {
			from, to := pair[0].addr, pair[1].addr
			t.Run("publications", func(t *testing.T) { testPublications(t, from, to) })
			t.Run("presence", func(t *testing.T) { testPresence(t, from, to) })
			t.Run("calls to clients", func(t *testing.T) { testCalls(t, from, to) })
			t.Run("limits", func(t *testing.T) { testLimits(t, from, to) })
			t.Run("sessions", func(t *testing.T) { testSessions(t, from, to) })
		})
	}
	t.Run("shutdown of the old node", func(t *testing.T) { testShutdown(t, old, present) })
}

// waitForEachOther waits until the nodes know each other: until then, they reject calls to clients
// of all nodes.
func waitForEachOther(t *testing.T, nodes ...*process) {
	t.Helper()
	for _, n := range nodes {
		c, _ := connect(t, n.addr, "ann", client.Options{})
		require.Eventually(t, func() bool {
			_, err := client.Call[versions.Result](within(t), c, versions.AskUser{User: "absent"})
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
}

// id returns a segment of a topic that no other test has.
func id(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", ".") }

func call(t *testing.T, c *client.Client, m client.Message) versions.Result {
	t.Helper()
	got, err := client.Call[versions.Result](within(t), c, m)
	require.NoError(t, err)
	return got
}

// subscribe subscribes to a topic whose notes it returns. A loss fails the test.
func subscribe(t *testing.T, c *client.Client, topic string) <-chan versions.Note {
	t.Helper()
	notes := make(chan versions.Note, 1000)
	_, err := c.Subscribe(within(t), topic, &client.SubscribeOptions{
		Handlers: []client.Handler{client.HandlerFor(func(m versions.Note, _ *client.Received) { notes <- m })},
		OnLoss:   func(loss client.Loss) { assert.Fail(t, "lost", "%s: %v", topic, loss) },
	})
	require.NoError(t, err)
	return notes
}

func testPublications(t *testing.T, from, to string) {
	publisher, _ := connect(t, from, "ann", client.Options{})
	subscriber, _ := connect(t, to, "bob", client.Options{})
	for _, topic := range []string{"live/" + id(t), "kept/" + id(t)} {
		notes := subscribe(t, subscriber, topic)
		awaitDelivery(t, publisher, topic, notes)
		for i := range 100 {
			call(t, publisher, versions.Publish{Topic: topic, Text: fmt.Sprint(i)})
		}
		for i := range 100 {
			got := versionsReceive(t, notes)
			for got.Text == ready {
				got = versionsReceive(t, notes)
			}
			require.Equal(t, versions.Note{Topic: topic, Text: fmt.Sprint(i)}, got)
		}
	}
}

// ready is the text of publications that show that the nodes deliver.
const ready = "ready"

// awaitDelivery publishes until a subscriber on another node receives it: on a topic without a history,
// that begins some time after the subscription.
func awaitDelivery(t *testing.T, publisher *client.Client, topic string, notes <-chan versions.Note) {
	t.Helper()
	require.Eventually(t, func() bool {
		call(t, publisher, versions.Publish{Topic: topic, Text: ready})
		return len(notes) > 0
	}, time.Minute, 10*time.Millisecond)
}

func testPresence(t *testing.T, from, to string) {
	topic := "live/" + id(t)
	seen := make(chan string, 100)
	watcher, _ := connect(t, to, "watcher", client.Options{})
	_, err := watcher.Subscribe(within(t), topic, &client.SubscribeOptions{OnPresence: func(joined, left []client.Member, _ bool) {
		for _, m := range left {
			seen <- "-" + m.UserID
		}
		for _, m := range joined {
			seen <- "+" + m.UserID
		}
	}})
	require.NoError(t, err)
	require.Equal(t, "+watcher", versionsReceive(t, seen))
	guest, _ := connect(t, from, "guest", client.Options{})
	_, err = guest.Subscribe(within(t), topic, &client.SubscribeOptions{OnPresence: func([]client.Member, []client.Member, bool) {}})
	require.NoError(t, err)
	require.Equal(t, "+guest", versionsReceive(t, seen))
	require.Equal(t, []string{"guest", "watcher"}, call(t, guest, versions.Members{Topic: topic}).Texts)
	require.Equal(t, []string{"guest", "watcher"}, call(t, watcher, versions.Members{Topic: topic}).Texts)
	require.NoError(t, guest.Close(within(t)))
	require.Equal(t, "-guest", versionsReceive(t, seen))
}

func testCalls(t *testing.T, from, to string) {
	caller, _ := connect(t, from, "ann", client.Options{})
	for _, addr := range []string{from, to} {
		called, _ := connect(t, addr, t.Name(), client.Options{})
		client.Handle(called, func(_ context.Context, m versions.Question) (versions.Answer, error) {
			return versions.Answer{Texts: []string{m.Text}}, nil
		})
	}
	require.Equal(t, []string{"why", "why"}, call(t, caller, versions.AskUser{User: t.Name(), Text: "why"}).Texts)
}

func testLimits(t *testing.T, from, to string) {
	a, _ := connect(t, from, "ann", client.Options{})
	b, _ := connect(t, to, "ann", client.Options{})
	require.Equal(t, int64(60), call(t, a, versions.Spend{Text: t.Name(), Count: 60}).Number)
	require.Equal(t, int64(40), call(t, b, versions.Spend{Text: t.Name(), Count: 60}).Number, "the bucket has 100 tokens")
	require.Equal(t, int64(0), call(t, a, versions.Spend{Text: t.Name(), Count: 1}).Number)
}

// testSessions moves a client to another node and back. Its subscription to a hall is one that a
// handler has made, which only the session restores.
func testSessions(t *testing.T, from, to string) {
	hall, topic := "hall/"+id(t), "kept/"+id(t)
	connected := make(chan struct{}, 100)
	inHall := make(chan versions.Note, 100)
	guest, way := connect(t, from, "guest", client.Options{Resume: true, OnState: func(s client.State, _ error) {
		if s == client.Open {
			connected <- struct{}{}
		}
	}})
	versionsReceive(t, connected)
	client.On(guest, func(m versions.Note, received *client.Received) {
		if received.Topic == hall {
			inHall <- m
		}
	})
	notes := subscribe(t, guest, topic)
	call(t, guest, versions.Enter{Topic: hall})
	first, ok := guest.Connection()
	require.True(t, ok)
	for i, addr := range []string{to, from, to} {
		publisher, _ := connect(t, addr, "ann", client.Options{})
		way.move("")
		missed := versions.Note{Topic: topic, Text: fmt.Sprint("missed ", i)}
		call(t, publisher, versions.Publish(missed))
		way.move(addr)
		versionsReceive(t, connected)
		require.Equal(t, missed, versionsReceive(t, notes))
		present, ok := guest.Connection()
		require.True(t, ok)
		require.True(t, present.Resumed, "the session continues on the other node")
		require.Equal(t, first.MemberID, present.MemberID)
		next := versions.Note{Topic: hall, Text: fmt.Sprint("hall ", i)}
		call(t, publisher, versions.Publish(next))
		require.Equal(t, next, versionsReceive(t, inHall))
	}
}

// testShutdown shuts a node down as in a rolling upgrade: its clients continue their sessions on
// the other one.
func testShutdown(t *testing.T, old, present *process) {
	topic := "kept/" + id(t)
	publisher, _ := connect(t, present.addr, "ann", client.Options{})
	guest, way := connect(t, old.addr, "guest", client.Options{Resume: true})
	notes := subscribe(t, guest, topic)
	way.next(present.addr)
	_, err := io.WriteString(old.stdin, "\n")
	require.NoError(t, err)
	old.wait(t)
	next := versions.Note{Topic: topic, Text: "after the shutdown"}
	call(t, publisher, versions.Publish(next))
	require.Equal(t, next, versionsReceive(t, notes))
	conn, ok := guest.Connection()
	require.True(t, ok)
	require.True(t, conn.Resumed)
}
