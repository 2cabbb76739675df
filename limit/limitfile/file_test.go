package limitfile_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limitfile"
)

// A setup has a file and the limiters that it configures.
type setup struct {
	path   string
	log    lockedLog
	chat   *memory.Limiter
	search *memory.CountLimiter[limit.WindowPolicy]
	export *memory.CountLimiter[limit.QuotaPolicy]
}

// A lockedLog is written by the goroutine that follows the file.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const valid = "chat: 10/s burst 20\nsearch: sliding-log 30/m\nexport: quota 100/day Europe/Berlin\n"

func newSetup(t *testing.T, text string) *setup {
	s := &setup{
		path:   filepath.Join(t.TempDir(), "limits.txt"),
		chat:   memory.NewLimiter(limit.PerSecond(1).Named("chat")),
		search: memory.NewSlidingLog(limit.WindowPolicy{Name: "search", Max: 1, Window: time.Second}),
		export: memory.NewQuota(limit.QuotaPolicy{Name: "export", Max: 1}),
	}
	s.write(t, text)
	return s
}

func (s *setup) write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.path, []byte(text), 0o600))
}

func (s *setup) load() (*limitfile.File, error) {
	return limitfile.Load(s.path, &limitfile.Options{Logger: slog.New(slog.NewTextHandler(&s.log, nil))}, s.chat, s.search, s.export)
}

// run follows the file until the test ends.
func (s *setup) run(t *testing.T) *limitfile.File {
	file, err := s.load()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); file.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return file
}

// capacity returns that of a limiter.
func capacity(l adapter.Describer) int64 { return l.Describe()[0].Limit }

// afterPolls returns when the file has been read n times more.
func afterPolls(n int) {
	time.Sleep(time.Duration(n) * limitfile.Interval)
	synctest.Wait()
}

func TestLoad_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"chat: 10/s\n": "there is no line for the limit \"search\"\nthere is no line for the limit \"export\"",
		"chatt: 10/s\nsearch: sliding-log 9/m\nexport: quota 9/day\n":      "there is no line for the limit \"chat\"\nline 1: there is no limit \"chatt\"; the limits are chat, export, search",
		"chat: quota 9/day\nsearch: sliding-log 9/m\nexport: 9/s\n":        "line 1: the limiter of \"chat\" needs a policy such as 10/s burst 20; it is quota 9/day\nline 3: the limiter of \"export\" needs a policy such as quota 1000/day; it is 9/s",
		"chat: 9/s\nsearch: 9/m\nexport: quota 9/day\n":                    "line 2: the limiter of \"search\" needs a policy such as sliding-log 10/m or sliding-counter 10/m; it is 9/m",
		valid + "chat: 10/s burst 2":                                       "line 4: the last line must end with a line break",
		"chat: 9/s\nsearch: sliding-counter 5000/m\nexport: quota 9/day\n": "limit \"search\": memory: limit: window \"search\": Max is 5000; a log keeps at most 1000 calls",
	} {
		s := newSetup(t, text)
		_, err := s.load()
		assert.ErrorContains(t, err, "limits file "+s.path+": ", text)
		assert.ErrorContains(t, err, want)
		assert.EqualValues(t, 1, capacity(s.export))
	}
}

func TestLoad_OfWhatIsNoFile(t *testing.T) {
	s := newSetup(t, valid)
	require.NoError(t, os.Remove(s.path))
	_, err := s.load()
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.Mkdir(s.path, 0o700))
	_, err = s.load()
	require.ErrorContains(t, err, "it is not a regular file but d")

	require.NoError(t, os.Remove(s.path))
	require.NoError(t, syscall.Mkfifo(s.path, 0o600))
	_, err = s.load()
	require.ErrorContains(t, err, "it is not a regular file but p", "it would wait for a writer")
}

func TestLoad_PanicsForLimitersWithoutALine(t *testing.T) {
	named := memory.NewLimiter(limit.PerSecond(1).Named("a"))
	for want, limiters := range map[string][]limit.Limiter{
		"limitfile: Load needs at least one limiter":                                                                              nil,
		"limitfile: a <nil> does not describe its policy; Load needs a adapter.Describer, for its name":                           {nil},
		"limitfile: the policy of a *memory.Limiter has no name; add one with Named, such as limit.PerSecond(10).Named(\"chat\")": {memory.NewLimiter(limit.PerSecond(1))},
		"limitfile: two limiters have a policy with the name \"a\"; a line can describe one":                                      {named, named},
		"limitfile: the policy of a *memory.Cooldown cannot change; Load needs a limit.PolicySetter":                              {memory.NewCooldown(limit.CooldownPolicy{Name: "c", Max: 1, Window: 1e9, Penalty: 1e9}, nil)},
	} {
		assert.PanicsWithValue(t, want, func() { _, _ = limitfile.Load("limits.txt", nil, limiters...) })
	}
	assert.Panics(t, func() {
		_, _ = limitfile.Load("limits.txt", nil, limit.AllOf(named, memory.NewLimiter(limit.PerSecond(1).Named("b"))))
	})
}

func TestRun_FollowsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, valid)
		file := s.run(t)
		assert.EqualValues(t, 20, capacity(s.chat))
		assert.EqualValues(t, 30, capacity(s.search))
		assert.EqualValues(t, 100, capacity(s.export))
		loaded := time.Now()
		assert.Equal(t, limitfile.Status{Applied: loaded}, file.Status())

		afterPolls(100)
		assert.Equal(t, loaded, file.Status().Applied, "the file has not changed")
		s.write(t, "# for the weekend\nchat: 5/s burst 30\nsearch: sliding-log 60/m\nexport: quota 100/day Europe/Berlin\n")
		afterPolls(1)
		assert.EqualValues(t, 20, capacity(s.chat), "the file may be incomplete")
		afterPolls(1)
		assert.EqualValues(t, 30, capacity(s.chat))
		assert.EqualValues(t, 60, capacity(s.search))
		assert.Equal(t, limitfile.Status{Applied: time.Now()}, file.Status())
		assert.Contains(t, s.log.String(), `msg="limit changed" path=`+s.path+` limit=chat old="10/s burst 20" new="5/s burst 30" rate="-50 %" capacity="+50 %"`+"\n")
		assert.NotContains(t, s.log.String(), "limit=export")

		s.log.Reset()
		s.write(t, "chat: 5/s burst 30\nsearch: sliding-log 60/m\nexport: quota 100/day Europe/Berlin\n")
		afterPolls(2)
		assert.Contains(t, s.log.String(), `msg="limits file has changed, and no limit has"`)
	})
}

func TestRun_InvalidFileKeepsLimits(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, s *setup){
		"invalid line": func(t *testing.T, s *setup) { s.write(t, "chat: 1/s\n"+valid) },
		"unknown name": func(t *testing.T, s *setup) { s.write(t, valid+"other: 1/s\n") },
		"missing line": func(t *testing.T, s *setup) { s.write(t, "chat: 1/s\n") },
		"empty":        func(t *testing.T, s *setup) { s.write(t, "") },
		"removed":      func(t *testing.T, s *setup) { require.NoError(t, os.Remove(s.path)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t, valid)
				file := s.run(t)
				loaded := file.Status().Applied
				s.log.Reset()
				damage(t, s)
				afterPolls(1)
				require.NoError(t, file.Status().Err, "a file that is being replaced may be missing or empty for a moment")
				afterPolls(1)
				require.ErrorContains(t, file.Status().Err, "limits file "+s.path)
				assert.Equal(t, loaded, file.Status().Applied)
				assert.EqualValues(t, 20, capacity(s.chat))
				afterPolls(100)
				assert.Equal(t, 1, strings.Count(s.log.String(), "limits file not applied; the limits in effect stay"), "an error is logged once: %s", &s.log)

				s.write(t, valid)
				afterPolls(1)
				assert.Equal(t, limitfile.Status{Applied: loaded}, file.Status(), "the limits in effect are known to be complete")
				assert.Contains(t, s.log.String(), "limits file is valid again, and no limit has changed")
			})
		})
	}
}

// A writer that truncates the file and writes it in pieces is never seen in part.
func TestRun_FileWrittenInPiecesIsAppliedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, "chat: 1/s burst 5\nsearch: sliding-log 30/m\nexport: quota 100/day\n")
		file := s.run(t)
		const changed = "search: sliding-log 30/m\nexport: quota 1000/day\nchat: 10/s burst 200\n"
		for n := 0; n < len(changed); n += 7 {
			s.write(t, changed[:n])
			afterPolls(1)
			require.EqualValues(t, 5, capacity(s.chat))
			require.EqualValues(t, 100, capacity(s.export))
			require.NoError(t, file.Status().Err)
		}
		s.write(t, changed)
		afterPolls(2)
		assert.EqualValues(t, 200, capacity(s.chat))
		assert.EqualValues(t, 1000, capacity(s.export))
	})
}

// Kubernetes replaces the files of a ConfigMap by renaming a symbolic link to their directory. The
// time of the file itself may be older than before.
func TestRun_FollowsReplacedSymbolicLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, valid)
		dir := filepath.Dir(s.path)
		for name, text := range map[string]string{"one": valid, "two": "chat: 1/s burst 2\nsearch: sliding-log 3/m\nexport: quota 4/day\n"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			file := filepath.Join(dir, name, "limits.txt")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			require.NoError(t, os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)))
		}
		require.NoError(t, os.Remove(s.path))
		require.NoError(t, os.Symlink("one", filepath.Join(dir, "..data")))
		require.NoError(t, os.Symlink(filepath.Join("..data", "limits.txt"), s.path))
		s.run(t)
		require.NoError(t, os.Symlink("two", filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		afterPolls(2)
		assert.EqualValues(t, 2, capacity(s.chat))
		assert.EqualValues(t, 4, capacity(s.export))
	})
}

func TestReload_AppliesAtOnce(t *testing.T) {
	s := newSetup(t, valid)
	file, err := s.load()
	require.NoError(t, err)
	require.NoError(t, file.Reload())
	s.write(t, "chat: 10/s burst 21\nsearch: sliding-log 30/m\nexport: quota 100/day\n")
	require.NoError(t, file.Reload())
	assert.EqualValues(t, 21, capacity(s.chat))

	s.write(t, "chat: fast\n")
	err = file.Reload()
	require.ErrorContains(t, err, "line 1: \"fast\" is not a rate")
	assert.Equal(t, err, file.Status().Err)
	assert.EqualValues(t, 21, capacity(s.chat))
	line, ok := errors.AsType[*limitfile.InvalidLine](err)
	require.True(t, ok)
	assert.Equal(t, 1, line.Line)
}

// stubborn is a limiter of an application, whose SetPolicy can fail.
type stubborn struct {
	*memory.Limiter
	fails func(limit.Policy) bool
}

func (s stubborn) SetPolicy(p limit.Policy) error {
	if s.fails(p) {
		return errors.New("the share of a node would be 0")
	}
	return s.Limiter.SetPolicy(p)
}

func TestReload_ReturnsToOldPoliciesIfOneCannotBeSet(t *testing.T) {
	s := newSetup(t, "chat: 10/s burst 20\nsecond: 1/s burst 5\n")
	second := stubborn{memory.NewLimiter(limit.PerSecond(1).Named("second")), func(p limit.Policy) bool { return p.Capacity == 6 }}
	file, err := limitfile.Load(s.path, nil, s.chat, second)
	require.NoError(t, err)
	s.write(t, "chat: 1/s burst 2\nsecond: 1/s burst 6\n")
	assert.EqualError(t, file.Reload(), "limits file "+s.path+": limit \"second\": the share of a node would be 0")
	assert.EqualValues(t, 20, capacity(s.chat))
	assert.EqualValues(t, 5, capacity(second))

	second.fails = func(p limit.Policy) bool { return true }
	file, err = limitfile.Load(s.path, nil, s.chat, second)
	assert.EqualError(t, err, "limits file "+s.path+": limit \"second\": the share of a node would be 0")
	assert.Nil(t, file)
}

// TestReload_KeepsReceiptsOfUnchangedLimits changes another line between an estimate and its settlement.
func TestReload_KeepsReceiptsOfUnchangedLimits(t *testing.T) {
	s := newSetup(t, valid)
	file, err := s.load()
	require.NoError(t, err)
	meter, key := limit.NewMeter(10*time.Minute, s.export), limit.Key{"user", "", "ann"}
	d, err := meter.Reserve(t.Context(), 80, key)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	s.write(t, strings.Replace(valid, "chat: 10/s", "chat: 9/s", 1))
	require.NoError(t, file.Reload())
	require.NoError(t, meter.Settle(t.Context(), d.Receipt, 5, key))
	left, err := limit.Inspect(t.Context(), s.export, key)
	require.NoError(t, err)
	assert.EqualValues(t, 95, left.Remaining)
}
