package limit_test

import (
	"archive/zip"
	"crypto/sha256"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
)

// TestQuotaPolicy_DaysOfEveryZone follows the days of the zones in the data of Go, whose future
// changes are rules, and of the operating system, which often lists them up to 2037: the turns
// of all years, in the full tier all days of some zones, and with PENSTOCK_TESTS=1h of all.
func TestQuotaPolicy_DaysOfEveryZone(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = archive.Close() })
	for name, data := range map[string]fs.FS{"Go": archive, "operating system": os.DirFS("/usr/share/zoneinfo")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zones := readZones(t, data)
			if len(zones) == 0 {
				t.Skip("there is no time zone data of the operating system in /usr/share/zoneinfo")
			}
			for _, zone := range testscale.Sample(zones, 100) {
				if testscale.Soak() > 0 || testscale.Pick(false, rand.IntN(50) == 0) {
					followDays(t, zone, 2000, 2061)
					continue
				}
				for year := 2000; year <= 2060; year++ {
					followDays(t, zone, year, year)
				}
			}
		})
	}
}

// readZones returns the zones of a directory, of those with the same data one.
func readZones(t *testing.T, data fs.FS) (zones []*time.Location) {
	t.Helper()
	seen := map[[sha256.Size]byte]bool{}
	err := fs.WalkDir(data, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(path, "right/") || strings.HasPrefix(path, "posix/") {
			return nil //nolint:nilerr // what cannot be read is no zone
		}
		file, err := data.Open(path)
		if err != nil {
			return nil //nolint:nilerr // a link to nowhere
		}
		defer func() { _ = file.Close() }()
		content, err := io.ReadAll(file)
		if sum := sha256.Sum256(content); err == nil && !seen[sum] {
			if zone, err := time.LoadLocationFromTZData(path, content); err == nil {
				zones, seen[sum] = append(zones, zone), true
			}
		}
		return nil
	})
	require.NoError(t, err)
	return zones
}

// A period is one of a policy.
type period struct {
	policy     limit.QuotaPolicy
	start, end time.Time
}

// followDays goes from day to day, from two days before a year to two days after the beginning
// of another one, and checks that the days, weeks and months follow each other, each day with a later
// date.
func followDays(t *testing.T, zone *time.Location, first, last int) {
	t.Helper()
	day, hour := limit.QuotaPolicy{Max: 1, Period: limit.Day, Location: zone}, limit.QuotaPolicy{Max: 1, Location: zone}
	longer := []*period{
		{policy: limit.QuotaPolicy{Max: 1, Period: limit.Month, Location: zone}},
		{policy: limit.QuotaPolicy{Max: 1, Period: limit.Week, Location: zone}},
		{policy: limit.QuotaPolicy{Max: 1, Period: limit.Month, Location: zone, Start: func(limit.Key) time.Time {
			return time.Date(2024, 1, 30, 12, 0, 0, 0, zone)
		}}},
	}
	start, _ := day.Bounds(limit.Key{}, time.Date(first-1, 12, 30, 12, 0, 0, 0, time.UTC))
	for _, p := range longer {
		p.start, p.end = p.policy.Bounds(limit.Key{}, start)
	}
	for stop := time.Date(last, 1, 3, 0, 0, 0, 0, time.UTC); start.Before(stop); {
		_, end := day.Bounds(limit.Key{}, start)
		require.True(t, end.After(start) && end.Sub(start) <= 28*time.Hour, "%v: the day from %v ends at %v", zone, start, end)
		last := end.Add(-1)
		from, to := day.Bounds(limit.Key{}, last)
		require.True(t, from.Equal(start) && to.Equal(end), "%v: the day of %v is from %v to %v, and not from %v to %v", zone, last, from, to, start, end)
		for _, p := range longer {
			from, to = p.policy.Bounds(limit.Key{}, last)
			require.True(t, from.Equal(p.start) && to.Equal(p.end), "%v: the %v of %v is from %v to %v, and not from %v to %v", zone, p.policy.Period, last, from, to, p.start, p.end)
			if end.Equal(p.end) {
				p.start, p.end = p.policy.Bounds(limit.Key{}, end)
				require.True(t, p.start.Equal(end), "%v: the %v after %v begins at %v", zone, p.policy.Period, end, p.start)
			}
		}
		from, to = hour.Bounds(limit.Key{}, last)
		require.True(t, from.Before(end) && to.Equal(end), "%v: the hour of %v is from %v to %v", zone, last, from, to)
		require.Greater(t, end.In(zone).Format(time.DateOnly), start.In(zone).Format(time.DateOnly), zone)
		start = end
	}
}
