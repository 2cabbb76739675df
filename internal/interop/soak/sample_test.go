package soak_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sample is what is measured at a time since the start.
type sample struct {
	at    time.Duration
	nodes []nodeSample
	keys  float64 // of Redis; -1 while it does not answer
}

type nodeSample struct{ heapBytes, residentBytes, goroutines, descriptors, connections float64 }

// A check says by how much the median of the last third may exceed that of the second third.
type check struct {
	name         string
	of           func(x sample, node int) float64
	ratio, slack float64
}

var checks = []check{
	{"heap in use, MB", func(x sample, n int) float64 { return x.nodes[n].heapBytes / 1e6 }, 1.15, 2},
	{"resident memory, MB", func(x sample, n int) float64 { return x.nodes[n].residentBytes / 1e6 }, 1.15, 5},
	{"goroutines", func(x sample, n int) float64 { return x.nodes[n].goroutines }, 1.1, 200},
	{"file descriptors", func(x sample, n int) float64 { return x.nodes[n].descriptors }, 1.1, 10},
	{"keys in Redis", func(x sample, _ int) float64 { return x.keys }, 1.1, 50},
}

func isError(message []byte) bool {
	return bytes.Contains(message, []byte(`"type":"ERROR"`)) || bytes.Contains(message, []byte(`"type":"RPC_ERROR"`))
}

// sampleUntil measures every five seconds until ctx ends.
func (s *soak) sampleUntil(ctx context.Context) {
	start := time.Now()
	for ctx.Err() == nil {
		sleep(ctx, 5*time.Second)
		s.samples = append(s.samples, s.sample(time.Since(start)))
	}
}

func (s *soak) sample(at time.Duration) sample {
	x := sample{at: at, keys: -1}
	for _, node := range s.nodes {
		m := s.metrics(node.Metrics)
		x.nodes = append(x.nodes, nodeSample{
			heapBytes: m["go_memstats_heap_inuse_bytes"], residentBytes: m["process_resident_memory_bytes"],
			goroutines: m["go_goroutines"], descriptors: m["process_open_fds"], connections: m["penstock_connections_open"],
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if keys, err := s.redis.Client(s.t).DBSize(ctx).Result(); err == nil {
		x.keys = float64(keys)
	}
	return x
}

// metrics reads those without labels.
func (s *soak) metrics(url string) map[string]float64 {
	response, err := http.Get(url)
	require.NoError(s.t, err)
	defer response.Body.Close() //nolint:errcheck // only read from
	m := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			m[name] = value
		}
	}
	return m
}

// median leaves out what could not be measured.
func median(samples []sample, of func(sample) float64) float64 {
	var values []float64
	for _, x := range samples {
		if value := of(x); value >= 0 {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func TestMedian(t *testing.T) {
	of := func(x sample) float64 { return x.keys }
	assert.Zero(t, median(nil, of))
	assert.EqualValues(t, 3, median([]sample{{keys: 9}, {keys: -1}, {keys: 3}, {keys: 1}}, of))
}

// write writes the samples as CSV.
func (s *soak) write() {
	dir := s.t.ArtifactDir()
	var table bytes.Buffer
	w := csv.NewWriter(&table)
	header := []string{"seconds"}
	for _, c := range checks {
		header = append(header, c.name+", node 1", c.name+", node 2")
	}
	require.NoError(s.t, w.Write(header))
	for _, x := range s.samples {
		row := []string{strconv.FormatFloat(x.at.Seconds(), 'f', 0, 64)}
		for _, c := range checks {
			for node := range s.nodes {
				row = append(row, strconv.FormatFloat(c.of(x, node), 'f', 1, 64))
			}
		}
		require.NoError(s.t, w.Write(row))
	}
	w.Flush()
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, "soak.csv"), table.Bytes(), 0o600))
	s.t.Logf("samples: %s", dir)
}
