package jsonplan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonplan"
)

func TestPlainASCII_EndsAtTheFirstOtherByte(t *testing.T) {
	for length := range 40 {
		text := strings.Repeat("x", length)
		require.Equal(t, length, jsonplan.PlainASCII(text))
		for at := range length {
			for _, other := range []string{"\x00", "\x1f", `"`, `\`, "\x80", "\xff"} {
				// What follows the first one may be anything, too.
				for _, rest := range []string{text[at+1:], strings.Repeat(other, length-at-1)} {
					text := text[:at] + other + rest
					require.Equal(t, at, jsonplan.PlainASCII(text), "%q", text)
					require.Equal(t, at, jsonplan.PlainASCII([]byte(text)), "%q", text)
				}
			}
		}
	}
}
