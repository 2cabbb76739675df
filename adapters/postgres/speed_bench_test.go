package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

var (
	updateSpeed = flag.String("speed.update", "", "the file whose tables of speed are replaced")
	speedTime   = flag.Duration("speed.time", 2*time.Second, "duration of each measurement of speed")
	speedPasses = flag.Int("speed.passes", 3, "number of measurements of speed, of which the tables have the medians")
)

var speedLoads = []struct{ topics, publishers int }{{1, 1}, {1, 16}, {1, 64}, {1000, 1}, {1000, 16}, {1000, 64}}

// BenchmarkSpeed measures publications, delivery and idle nodes beside Redis and Centrifugo's function, in
// interleaved passes, and prints tables. It ignores b.N.
//
//	go test -run '^$' -bench Speed -benchtime 1x -timeout 0 . -speed.update README.md
func BenchmarkSpeed(b *testing.B) {
	systems := speedSystems(b)
	rates := speedTable{columns: []string{"topics × publishers"}}
	for _, l := range speedLoads {
		rates.columns = append(rates.columns, fmt.Sprintf("%d × %d", l.topics, l.publishers))
	}
	latencies := speedTable{columns: []string{"ms from the call to another node", "idle, p50", "idle, p99", "500/s, p50", "500/s, p99"}}
	idle := speedTable{columns: []string{"nodes that publish nothing", "1 node", "10 nodes"}}
	for range *speedPasses {
		for i, l := range speedLoads {
			for _, s := range systems {
				perSecond, cpu := measureRate(b, s, l.topics, l.publishers)
				rates.add(s.name, i, perSecond, cpu)
			}
		}
		for _, s := range systems {
			if s.connect == nil {
				continue
			}
			for i, background := range []int{0, 500} {
				p50, p99 := measureLatency(b, s, background)
				latencies.add(s.name, 2*i, p50)
				latencies.add(s.name, 2*i+1, p99)
			}
			if strings.HasSuffix(s.name, "`Append`") { // one of each server
				for i, nodes := range []int{1, 10} {
					idle.add(strings.TrimSuffix(s.name, ", `Append`"), i, measureIdle(s, nodes))
				}
			}
		}
	}
	text := fmt.Sprintf("%s, %d CPUs shared by servers and clients, medians of passes: %d of %v.\n\n", runtime.Version(), runtime.NumCPU(), *speedPasses, *speedTime) +
		"Publications of 200 bytes per second, and CPU time of the server per publication:\n\n" + rates.format("%.0f/s %.0f µs") +
		"\nDelivery:\n\n" + latencies.format("%.1f") + "\nCPU time of the server, ms per second:\n\n" + idle.format("%.1f")
	fmt.Print(text)
	if *updateSpeed != "" {
		require.NoError(b, replaceSpeed(*updateSpeed, "speed", text))
	}
}

// replaceSpeed writes the tables of a section, which is between two comments.
func replaceSpeed(path, section, text string) error {
	begin, end := fmt.Sprintf("<!-- tables of %s: begin -->\n", section), fmt.Sprintf("<!-- tables of %s: end -->\n", section)
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, isClosed := strings.Cut(rest, end)
	if !ok || !isClosed {
		return fmt.Errorf("%s must have the lines %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o600)
}

// measureRate returns publications per second and the microseconds of the server for each. The time ends when all
// publications are stored.
func measureRate(b *testing.B, s *speedSystem, topics, publishers int) (perSecond, cpu float64) {
	var node broker.HistoryNode
	if s.connect != nil {
		node = s.connect(broker.HistoryCallbacks{})
		defer node.Close(context.Background()) //nolint:errcheck // the measurement is over
	}
	var count atomic.Int64
	var running sync.WaitGroup
	publish := func() bool {
		return assert.NoError(b, s.publish(b.Context(), node, fmt.Sprint("topic ", rand.IntN(topics))))
	}
	require.True(b, publish())
	s.settle()
	used, began := serverCPU(s.server), time.Now()
	for range publishers {
		running.Go(func() {
			for time.Since(began) < *speedTime && publish() {
				count.Add(1)
			}
		})
	}
	running.Wait()
	s.settle()
	n := float64(count.Load())
	return n / time.Since(began).Seconds(), float64((serverCPU(s.server) - used).Microseconds()) / n
}

// measureLatency returns milliseconds from the call of publish to the arrival at a node that does not publish, while
// another goroutine publishes background times per second on other topics.
func measureLatency(b *testing.B, s *speedSystem, background int) (p50, p99 float64) {
	arrived, following := make(chan time.Time, 1), make(chan struct{}, 1)
	receiver := s.connect(broker.HistoryCallbacks{
		Published: func(topic string, _ broker.Publication) {
			if topic == "measured" {
				arrived <- time.Now()
			}
		},
		Following: func(string) {
			select {
			case following <- struct{}{}:
			default:
			}
		},
	})
	defer receiver.Close(context.Background()) //nolint:errcheck // the measurement is over
	receiver.Follow("measured")
	<-following
	sender := s.connect(broker.HistoryCallbacks{})
	defer sender.Close(context.Background()) //nolint:errcheck // the measurement is over

	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	if background > 0 {
		ticks := time.NewTicker(time.Second / time.Duration(background))
		defer ticks.Stop()
		for range 16 {
			running.Go(func() {
				for ctx.Err() == nil {
					select {
					case <-ticks.C:
						_ = s.publish(ctx, sender, fmt.Sprint("topic ", rand.IntN(1000))) // fails at the end
					case <-ctx.Done():
					}
				}
			})
		}
	}
	var all []float64
	for began := time.Now(); time.Since(began) < *speedTime || len(all) < 20; time.Sleep(5 * time.Millisecond) {
		sent := time.Now()
		require.NoError(b, s.publish(b.Context(), sender, "measured"))
		all = append(all, (<-arrived).Sub(sent).Seconds()*1000)
	}
	stop()
	running.Wait()
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// measureIdle returns the milliseconds of the server per second while nodes publish nothing.
func measureIdle(s *speedSystem, nodes int) float64 {
	var all []broker.HistoryNode
	for range nodes {
		all = append(all, s.connect(broker.HistoryCallbacks{}))
	}
	time.Sleep(2 * time.Second) // they know each other
	used, began := serverCPU(s.server), time.Now()
	time.Sleep(5 * *speedTime) // the clock of the processes has steps of 10 ms
	perSecond := float64((serverCPU(s.server) - used).Microseconds()) / 1000 / time.Since(began).Seconds()
	for _, node := range all {
		_ = node.Close(context.Background())
	}
	return perSecond
}

// A speedTable collects the values of all passes. Its first column has the names of rows.
type speedTable struct {
	columns []string
	rows    []string
	values  map[string][][]float64 // by row and column; those of a cell follow each other in every pass
	perCell int
}

func (t *speedTable) add(row string, column int, values ...float64) {
	key := fmt.Sprint(row, " ", column)
	if t.values == nil {
		t.values = map[string][][]float64{}
	}
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	t.perCell = len(values)
	t.values[key] = append(t.values[key], values)
}

// format returns the table in Markdown, with the medians. cell formats the values of a cell.
func (t *speedTable) format(cell string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.columns, " | "), strings.Repeat(" --- |", len(t.columns)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for column := range len(t.columns) - 1 {
			var medians []any
			passes, ok := t.values[fmt.Sprint(row, " ", column)]
			if !ok {
				b.WriteString(" – |")
				continue
			}
			for i := range t.perCell {
				var all []float64
				for _, pass := range passes {
					all = append(all, pass[i])
				}
				slices.Sort(all)
				medians = append(medians, all[len(all)/2])
			}
			fmt.Fprintf(&b, " "+cell+" |", medians...)
		}
		b.WriteString("\n")
	}
	return b.String()
}
