package durablestreams

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/internal/random"
)

// Cursors make the URLs of successive live reads differ, so that no cache answers them with the same response for
// ever. A cursor is the number of an interval since cursorEpoch, which is 2024-10-09 UTC in Unix time.
const (
	cursorInterval = 20 * time.Second
	cursorEpoch    = 1728432000
)

// nextCursor returns the current cursor, or a random one up to an hour ahead of the client's if the client has this
// one already.
func nextCursor(client uint64) string {
	cursor := uint64(time.Since(time.Unix(cursorEpoch, 0)) / cursorInterval) //nolint:gosec // positive
	if client >= cursor {
		cursor = client + 1 + random.N(uint64(time.Hour/cursorInterval))
	}
	return strconv.FormatUint(cursor, 10)
}
