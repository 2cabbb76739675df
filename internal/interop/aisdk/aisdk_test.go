package aisdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

func TestAISDK_Transport(t *testing.T) { runNode(t, "transport.test.mjs", memory.NewBroker()) }

func TestAISDK_TransportOnRedis(t *testing.T) {
	testscale.FullOnly(t, "TestAISDK_Transport")
	runNode(t, "transport.test.mjs", redis.NewBroker(redistest.Start(t).Client(t)))
}

// TestAISDK_WrongServers shows that the checks of the other tests find what is wrong.
func TestAISDK_WrongServers(t *testing.T) { runNode(t, "wrong.test.mjs", memory.NewBroker()) }

func TestAISDK_UseChat(t *testing.T) { runNode(t, "react.test.mjs", memory.NewBroker()) }

// directory has the programs and their packages.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

// runNode runs a program against two nodes that share a broker.
func runNode(t *testing.T, program string, b broker.Broker) {
	t.Helper()
	dir := directory.Path(t, func(dir string) { copyPrograms(t, dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, nodetest.Program(t, "node"), filepath.Join(dir, program))
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "PENSTOCK_URLS="+startNode(t, b)+" "+startNode(t, b))
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func copyPrograms(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{"*.mjs", "package*.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
	}
}

// startNode starts a node and returns its URL. Chats belong to the user whose name they begin with,
// and the user "viewer" may read all.
func startNode(t *testing.T, b broker.Broker) string {
	r := router.New(&router.Options{Broker: b})
	runs := run.New(r, "answer/{chat}", &run.Options[aisdk.Chunk]{Merge: aisdk.MergeDeltas})
	server := httptest.NewServer(aisdk.New(r, runs, &aisdk.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			user := req.URL.Query().Get("user")
			if user == "" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no user")
			}
			return router.Identity{UserID: user}, nil
		},
		Authorize: func(_ context.Context, a aisdk.Access) error {
			owner, _, _ := strings.Cut(a.Chat, "-")
			if a.Identity.UserID == owner || a.Identity.UserID == "viewer" && a.Action == aisdk.ActionResume {
				return nil
			}
			return errors.Errorf(errors.PermissionDenied, "not yours")
		},
		Topic:   func(_ router.Identity, chat string) string { return "answer/" + chat },
		Answer:  follow,
		Origins: []string{"*"},
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, r.Shutdown(ctx))
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/"
}

// follow produces what the body of a send says: a number of items, or every kind of chunk.
func follow(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
	var body struct {
		Items, EveryMs, FailAfter int
		Everything                bool
	}
	body.FailAfter = -1
	if err := json.Unmarshal(req.Body, &body); err != nil {
		return err
	}
	if body.Everything {
		return everything(out)
	}
	if err := emit(out, aisdk.Start("", map[string]string{"run": out.Run().ID}), aisdk.StartStep(), aisdk.TextStart("1")); err != nil {
		return err
	}
	for i := range body.Items {
		if i == body.FailAfter {
			return errors.Errorf(errors.Unavailable, "the model has failed")
		}
		if err := out.Emit(aisdk.TextDelta("1", fmt.Sprint("w", i, " "))); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(body.EveryMs) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func emit(out *aisdk.Output, chunks ...aisdk.Chunk) error {
	for _, c := range chunks {
		if err := out.Emit(c); err != nil {
			return err
		}
	}
	return nil
}

// everything emits every type of chunk, with null where it is allowed.
func everything(out *aisdk.Output) error {
	progress := aisdk.Data("progress", nil)
	progress.Transient = true
	weather := aisdk.Data("weather", map[string]any{"city": "Bern"})
	weather.ID = "w1"
	delta := aisdk.TextDelta("1", "")
	delta.ProviderMetadata = map[string]map[string]any{"openai": {"cached": nil}}
	dynamic := aisdk.ToolInputStart("t4", "search")
	dynamic.Dynamic = true
	dynamicInput := aisdk.ToolInputAvailable("t4", "search", nil)
	dynamicInput.Dynamic, dynamicInput.ToolMetadata = true, map[string]any{"cost": 1}
	first := aisdk.ToolOutputAvailable("t4", 1)
	first.Preliminary = true
	return emit(out,
		aisdk.Start("message-1", map[string]any{"model": "fake"}), progress, aisdk.StartStep(),
		aisdk.TextStart("0"), aisdk.TextDelta("0", "forgotten"), aisdk.ResetStep(),
		aisdk.ReasoningStart("1"), aisdk.ReasoningDelta("1", "Hm. "), aisdk.ReasoningDelta("1", "Well."), aisdk.ReasoningEnd("1"),
		aisdk.TextStart("1"), aisdk.TextDelta("1", "Good "), delta, aisdk.TextDelta("1", "morning"), aisdk.TextEnd("1"),
		aisdk.ToolInputStart("t1", "weather"), aisdk.ToolInputDelta("t1", `{"city":`), aisdk.ToolInputDelta("t1", `"Bern"}`),
		aisdk.ToolInputAvailable("t1", "weather", map[string]string{"city": "Bern"}), aisdk.ToolOutputAvailable("t1", nil),
		aisdk.ToolInputAvailable("t2", "weather", 1), aisdk.ToolOutputError("t2", "no such city"),
		aisdk.ToolInputError("t3", "weather", nil, "the input is invalid"),
		dynamic, dynamicInput, first, aisdk.ToolOutputAvailable("t4", 2),
		aisdk.ToolInputAvailable("t5", "delete", nil), aisdk.ToolApprovalRequest("a5", "t5"), aisdk.ToolApprovalResponse("a5", false),
		aisdk.ToolOutputDenied("t5"),
		aisdk.SourceURL("s1", "https://example.com"), aisdk.SourceDocument("s2", "text/plain", "Notes"),
		aisdk.File("https://example.com/a.png", "image/png"), aisdk.ReasoningFile("https://example.com/b.png", "image/png"),
		aisdk.Custom("openai.compaction"), weather, aisdk.MessageMetadata(map[string]any{"tokens": 7}),
		aisdk.FinishStep(), aisdk.Finish(aisdk.FinishLength),
	)
}
