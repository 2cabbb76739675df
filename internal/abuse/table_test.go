//go:build unix && !race

package abuse_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// columns are the values of a cost.
var columns = []string{"bytes kept", "bytes kept in Redis", "bytes sent", "CPU time", "Redis commands", "bytes to and from Redis"}

func (c cost) values() []float64 {
	return []float64{c.kept, c.redisKept, c.sent, c.cpu, c.commands, c.traffic}
}

const (
	tableBegin = "<!-- table of costs: begin -->\n"
	tableEnd   = "<!-- table of costs: end -->\n"
)

// table returns a Markdown table of the costs of rows, with the ceilings in parentheses.
func table(rows []row, costs []cost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| the client sends | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.name)
		ceilings := row.ceiling.values()
		for column, value := range costs[i].values() {
			fmt.Fprintf(&b, " %s (%v) |", short(value), ceilings[column])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short formats a value with two digits.
func short(value float64) string {
	text := strconv.FormatFloat(max(value, 0), 'g', 2, 64)
	rounded, _ := strconv.ParseFloat(text, 64)
	if rounded < 0.001 {
		return "0"
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// updateTable replaces the table in a document.
func updateTable(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, found := strings.Cut(rest, tableEnd)
	if !ok || !found {
		return fmt.Errorf("%s has no table of costs", path)
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o644)
}

// TestSecurity_TableHasTheCeilings compares the names and the ceilings in SECURITY.md, whose other numbers
// are those of one machine.
func TestSecurity_TableHasTheCeilings(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), tableBegin)
	written, _, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "SECURITY.md has no table of costs")
	assert.Equal(t, ceilings(table(rows, make([]cost, len(rows)))), ceilings(strings.TrimSpace(written)),
		"run PENSTOCK_TESTS=full go test ./internal/abuse -abuse.update ../../SECURITY.md")
}

// TestRows_HaveEveryMessageOfTheProtocol uses that a greeting calls AnnounceLimits once for each message
// that clients send.
func TestRows_HaveEveryMessageOfTheProtocol(t *testing.T) {
	var names strings.Builder
	for _, row := range rows {
		names.WriteString(row.name + "\n")
	}
	types := map[string]bool{}
	r := router.New(&router.Options{
		Resume: router.ResumeOptions{Within: time.Minute},
		AnnounceLimits: func(in router.IngressContext) []router.AnnouncedLimit {
			types[in.Type] = true
			return nil
		},
	})
	server := httptest.NewServer(r)
	defer server.Close()
	client := &attacker{t: t, addr: server.Listener.Addr().String()}
	p := client.connect("")
	p.add(`{"type":"$ws:hello"}`)
	p.await(`"$ws:welcome"`, 1)
	for typ := range types {
		assert.Contains(t, names.String(), "`"+typ+"`")
	}
	assert.Greater(t, len(types), 8)
}

// ceilings returns a table without what was measured.
func ceilings(table string) string {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "|")
		for j := range cells {
			if at := strings.LastIndex(cells[j], " ("); at >= 0 && i > 1 {
				cells[j] = cells[j][at:]
			}
		}
		lines[i] = strings.Join(cells, "|")
	}
	return strings.Join(lines, "\n")
}
