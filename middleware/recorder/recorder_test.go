package recorder_test

import (
	"encoding/csv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/recorder"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// lines returns the records of all files, oldest first, and the size of the files.
func lines(t *testing.T, directory string) (records [][]string, size int64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "trace-*.csv"))
	require.NoError(t, err)
	slices.Sort(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		size += int64(len(text))
		all, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
		require.NoError(t, err, path)
		require.Equal(t, []string{"time", "key", "type", "cost"}, all[0])
		records = append(records, all[1:]...)
	}
	return records, size
}

// sizeOf returns the size of all files, some of which may be removed meanwhile.
func sizeOf(t *testing.T, directory string) (size int64) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

func message(kind string) router.IngressContext {
	return router.IngressContext{Type: kind, Identity: router.Identity{UserID: "ann"}, ReceivedAt: time.Now()}
}

func open(t *testing.T, directory string, opts *recorder.Options) *recorder.Recorder {
	t.Helper()
	rec, err := recorder.New(directory, opts)
	require.NoError(t, err)
	return rec
}

type say struct {
	Text string `json:"text"`
}

func (say) MessageType() string { return "SAY" }

func TestRecorder_RecordsMessagesThatLimitsReject(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "new", "trace")
	rec := open(t, directory, &recorder.Options{Cost: func(in router.IngressContext) int64 { return in.Size / 10 }})
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		r.UseIngress(rec.Record)
		r.UseIngress(ratelimit.New(memory.NewLimiter(limit.PerHour(2)), nil))
		router.On(r, func(*router.Context, say) error { return nil })
		c := routertest.Dial(t, r)
		for range 5 {
			c.Send(say{Text: "hello"})
		}
		synctest.Wait()
	})
	require.NoError(t, rec.Close())
	records, _ := lines(t, directory)
	require.Len(t, records, 5)
	for _, record := range records {
		assert.Equal(t, records[0][1], record[1], "one client")
		assert.Equal(t, []string{"SAY", "7"}, record[2:])
	}
	assert.Equal(t, recorder.Stats{Recorded: 5}, rec.Stats())
}

func TestRecorder_WritesEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory := t.TempDir()
		rec := open(t, directory, nil)
		defer func() { assert.NoError(t, rec.Close()) }()
		at := time.Now()
		require.NoError(t, rec.Record(t.Context(), message("SAY")))
		time.Sleep(time.Second)
		synctest.Wait()
		records, _ := lines(t, directory)
		require.Len(t, records, 1)
		assert.Equal(t, "946684800000000", records[0][0], "%v in microseconds", at)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, recorder.Stats{Recorded: 1}, rec.Stats())
	})
}

func TestRecorder_BoundsSizeOfAllFiles(t *testing.T) {
	directory := t.TempDir()
	const maxBytes = 1 << 20
	const messages, runs = 20_000, 4
	for run := range runs {
		rec := open(t, directory, &recorder.Options{MaxBytes: maxBytes})
		for n := range messages {
			require.NoError(t, rec.Record(t.Context(), message("TYPE")))
			if n%5000 == 0 {
				require.LessOrEqual(t, sizeOf(t, directory), int64(maxBytes))
			}
		}
		require.NoError(t, rec.Close())
		assert.Equal(t, recorder.Stats{Recorded: messages}, rec.Stats())
		records, size := lines(t, directory)
		assert.LessOrEqual(t, size, int64(maxBytes))
		if run > 1 {
			assert.Greater(t, size, int64(maxBytes*3/4), "only the oldest files are removed")
		}
		assert.True(t, slices.IsSortedFunc(records, func(a, b []string) int { return strings.Compare(a[0], b[0]) }))
	}
}

func TestRecorder_KeepsOtherFiles(t *testing.T) {
	directory := t.TempDir()
	other := filepath.Join(directory, "notes.csv")
	require.NoError(t, os.WriteFile(other, make([]byte, 2<<20), 0o600))
	rec := open(t, directory, &recorder.Options{MaxBytes: 1 << 20})
	require.NoError(t, rec.Record(t.Context(), message("SAY")))
	require.NoError(t, rec.Close())
	records, _ := lines(t, directory)
	assert.Len(t, records, 1)
	assert.FileExists(t, other)
}

func TestRecorder_HashesKeys(t *testing.T) {
	hashes := func(secret string, keys ...limit.Key) (hashes []string) {
		directory, n := t.TempDir(), 0
		rec := open(t, directory, &recorder.Options{
			Secret: []byte(secret),
			Key:    func(router.IngressContext) limit.Key { n++; return keys[n-1] },
		})
		for range keys {
			require.NoError(t, rec.Record(t.Context(), router.IngressContext{}))
		}
		require.NoError(t, rec.Close())
		records, _ := lines(t, directory)
		for _, record := range records {
			assert.Len(t, record[1], 11)
			hashes = append(hashes, record[1])
		}
		return hashes
	}
	ambiguous := []limit.Key{{"user", "ab", "c"}, {"user", "a", "bc"}, {"user", "", "abc"}, {"userab", "c"}}
	first := hashes("secret", ambiguous...)
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(first))), len(ambiguous))
	assert.Equal(t, first, hashes("secret", ambiguous...), "two nodes with one secret")
	assert.NotEqual(t, first, hashes("other", ambiguous...))
	assert.NotEqual(t, hashes("", limit.Key{"a"}), hashes("x", limit.Key{"a"}))
}

func TestRecorder_QuotesTypes(t *testing.T) {
	directory := t.TempDir()
	rec := open(t, directory, nil)
	for _, kind := range []string{`a,"b"`, "line\nbreak", ""} {
		require.NoError(t, rec.Record(t.Context(), message(kind)))
	}
	require.NoError(t, rec.Close())
	records, _ := lines(t, directory)
	var kinds []string
	for _, record := range records {
		kinds = append(kinds, record[2])
	}
	assert.Equal(t, []string{`a,"b"`, "line break", ""}, kinds)
}

func TestRecorder_ReportsErrorsAndContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory := filepath.Join(t.TempDir(), "trace")
		var failures []error
		rec := open(t, directory, &recorder.Options{OnError: func(err error) { failures = append(failures, err) }})
		require.NoError(t, os.Remove(directory))
		require.NoError(t, rec.Record(t.Context(), message("SAY")))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], fs.ErrNotExist)
		assert.Equal(t, recorder.Stats{Dropped: 1}, rec.Stats())
		require.NoError(t, os.Mkdir(directory, 0o700))
		require.NoError(t, rec.Record(t.Context(), message("SAY")))
		require.NoError(t, rec.Close())
		records, _ := lines(t, directory)
		assert.Len(t, records, 1)
		assert.Equal(t, recorder.Stats{Recorded: 1, Dropped: 1}, rec.Stats())
	})
}

func TestRecorder_DropsMessagesThatDiskCannotFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory := filepath.Join(t.TempDir(), "trace")
		blocked := make(chan struct{})
		rec := open(t, directory, &recorder.Options{OnError: func(error) { <-blocked }}) // a disk that does not answer
		require.NoError(t, os.Remove(directory))
		require.NoError(t, rec.Record(t.Context(), message("SAY")))
		time.Sleep(time.Second)
		synctest.Wait()
		for range 1<<16 + 10 {
			require.NoError(t, rec.Record(t.Context(), message("SAY")))
		}
		assert.Equal(t, recorder.Stats{Dropped: 11}, rec.Stats(), "one failed, ten did not fit")
		require.NoError(t, os.Mkdir(directory, 0o700))
		close(blocked)
		require.NoError(t, rec.Close())
		assert.Equal(t, recorder.Stats{Recorded: 1 << 16, Dropped: 11}, rec.Stats())
	})
}

func TestRecorder_CountsEveryMessageOfManyGoroutines(t *testing.T) {
	directory := t.TempDir()
	rec := open(t, directory, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				_ = rec.Record(t.Context(), message("SAY"))
			}
		})
	}
	wg.Wait()
	require.NoError(t, rec.Close())
	require.NoError(t, rec.Close())
	require.NoError(t, rec.Record(t.Context(), message("SAY")), "after Close nothing is recorded")
	records, _ := lines(t, directory)
	assert.Len(t, records, 16_000)
	assert.Equal(t, recorder.Stats{Recorded: 16_000}, rec.Stats())
}

func TestNew_RejectsInvalidOptions(t *testing.T) {
	assert.PanicsWithValue(t, "recorder: MaxBytes is 1000; it must be at least 1048576", func() {
		_, _ = recorder.New(t.TempDir(), &recorder.Options{MaxBytes: 1000})
	})
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := recorder.New(file, nil)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "recorder: ")
}

func BenchmarkRecord(b *testing.B) {
	rec, err := recorder.New(b.TempDir(), nil)
	require.NoError(b, err)
	in := message("SAY")
	for b.Loop() {
		_ = rec.Record(b.Context(), in)
	}
	require.NoError(b, rec.Close())
}
