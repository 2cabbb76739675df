package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// newRecord parses the time, key, cost and type of a line.
func newRecord(texts [4]string) (Record, error) {
	micros, err := parseMicros(strings.TrimSpace(texts[0]))
	if err != nil {
		return Record{}, err
	}
	if texts[1] == "" {
		return Record{}, errors.New("key is empty")
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

// parseMicros parses a time in RFC 3339 format or a number since 1970. It truncates to
// microseconds.
func parseMicros(text string) (int64, error) {
	if strings.ContainsRune(text, '-') {
		at, err := time.Parse(time.RFC3339, text)
		switch {
		case err != nil:
			return 0, timeError(text)
		case at.Unix() < 0:
			return 0, fmt.Errorf("time is %q; it must not be before 1970", text)
		}
		return at.UnixMicro(), nil
	}
	whole, fraction, dot := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || dot && !isDigits(fraction) {
		return 0, timeError(text)
	}
	digits := digitsToMicros(n)
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

func timeError(text string) error {
	return fmt.Errorf("time is %.80q; it must be in RFC 3339 format, such as 2026-09-01T18:00:00.5Z, or Unix seconds, such as 1788285600.5", text)
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// digitsToMicros returns the power of ten that converts a number since 1970 to microseconds. The
// size of the number shows its unit: from 1973 to 5138, seconds have up to 11 digits, milliseconds
// 12 to 14, microseconds 15 to 17, and nanoseconds 18 or more.
func digitsToMicros(n uint64) int {
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
