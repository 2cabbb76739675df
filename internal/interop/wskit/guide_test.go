package wskit_test

import (
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// The messages of docs/writing-a-client.md.
type (
	Say struct {
		Text string `json:"text"`
	}
	Said struct {
		Text string `json:"text"`
	}
	Import struct {
		Rows int `json:"rows"`
	}
	Percent struct {
		Percent int `json:"percent"`
	}
	Imported struct {
		Done bool `json:"done"`
	}
	Export struct {
		Table string `json:"table"`
	}
	Row struct {
		Name string `json:"name"`
	}
)

func (Say) MessageType() string      { return "SAY" }
func (Said) MessageType() string     { return "SAID" }
func (Import) MessageType() string   { return "IMPORT" }
func (Imported) MessageType() string { return "IMPORTED" }
func (Export) MessageType() string   { return "EXPORT" }

var guide = feature{register: func(r *router.Router) {
	router.On(r, func(ctx *router.Context, m Say) error { return ctx.Publish("lobby", Said(m)) })
	router.RPC(r, func(ctx *router.Context, m Import) (Imported, error) {
		for i := range m.Rows {
			if err := ctx.Progress(Percent{100 * (i + 1) / m.Rows}); err != nil {
				return Imported{}, err
			}
		}
		return Imported{true}, nil
	})
	router.Stream(r, func(_ *router.Context, m Export) iter.Seq2[Row, error] {
		return func(yield func(Row, error) bool) {
			_ = yield(Row{m.Table + " 1"}, nil) && yield(Row{m.Table + " 2"}, nil)
		}
	})
}}

// guideBlock is a JavaScript block of the section "Without a library".
var guideBlock = regexp.MustCompile("(?ms)^```js\n(.*?)^```$")

// TestGuide_ClientsWithoutALibrary runs the blocks of the guide, each with what the one before it declares, as
// modules that guide.test.mjs imports.
func TestGuide_ClientsWithoutALibrary(t *testing.T) {
	text, err := os.ReadFile("../../../docs/writing-a-client.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Without a library\n")
	require.True(t, ok)
	blocks := guideBlock.FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 3, "guide.test.mjs has a test for each")
	dir := directory.Path(t, func(dir string) { copyPrograms(t, dir) })
	url := startServer(t, []feature{guide}).url
	for name, module := range map[string]string{
		"guide-plain.mjs": blocks[0][1] + "\nexport { socket }\n",
		"guide-calls.mjs": blocks[1][1] + "\nexport { call, socket }\nexport async function use(show) {\n" + blocks[2][1] + "\nreturn done\n}\n",
	} {
		require.Contains(t, module, "wss://example.com/ws")
		module = strings.ReplaceAll(module, "wss://example.com/ws", url)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(module), 0o600))
	}
	runNodeAgainst(t, "guide.test.mjs", url)
}
