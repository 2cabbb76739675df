package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// newRecord returns the record of a line's time, key, cost and type, as they are written.
func newRecord(texts [4]string) (Record, error) {
	micros, err := parseMicros(strings.TrimSpace(texts[0]))
	if err != nil {
		return Record{}, err
	}
	if texts[1] == "" {
		return Record{}, errors.New("the key is empty")
	}
	cost, err := parseCost(strings.TrimSpace(texts[2]))
	if err != nil {
		return Record{}, err
	}
	return Record{Micros: micros, Key: texts[1], Cost: cost, Type: texts[3]}, nil
}

func parseCost(text string) (int64, error) {
	if text == "" {
		return 1, nil
	}
	cost, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("cost is %.80q; it must be a whole number from 0 to 2^63-1", text)
	}
	return int64(cost), nil
}

// parseMicros reads a time of RFC 3339, or one in numbers since 1970. What is finer than a
// microsecond is cut off.
func parseMicros(text string) (int64, error) {
	if strings.ContainsRune(text, '-') {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return 0, errorInTime(text)
		}
		return at.UnixMicro(), nil
	}
	whole, fraction, dot := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || dot && !isDigits(fraction) {
		return 0, errorInTime(text)
	}
	digits := unitDigits(n)
	if digits < 0 {
		return int64(n / 1000), nil
	}
	for i := range digits {
		n *= 10
		if i < len(fraction) {
			n += uint64(fraction[i] - '0')
		}
	}
	return int64(n), nil
}

func errorInTime(text string) error {
	return fmt.Errorf("time is %.80q; it must be of RFC 3339, such as 2026-09-01T18:00:00.5Z, or Unix seconds, such as 1788285600.5", text)
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// unitDigits returns how many digits a number since 1970 is short of microseconds. No unit
// need be named: from 1973 to 5138, seconds have up to 11 digits, milliseconds 12 to 14,
// microseconds 15 to 17, and nanoseconds more, which are -3 digits short.
func unitDigits(n uint64) int {
	switch {
	case n < 1e11:
		return 6
	case n < 1e14:
		return 3
	case n < 1e17:
		return 0
	}
	return -3
}
