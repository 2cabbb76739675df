package wsconn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMask_EqualsByteByByte(t *testing.T) {
	key := [keyBytes]byte{0x80, 2, 3, 0xf4}
	for length := range 80 {
		for pos := range keyBytes {
			for other := -1; other < length; other++ { // the index of the only byte that is not ASCII
				want, src := make([]byte, length), make([]byte, length)
				for i := range want {
					want[i] = byte('a' + i%26)
					if i == other {
						want[i] = 0x80
					}
					src[i] = want[i] ^ key[(pos+i)%keyBytes]
				}
				got := make([]byte, length)
				require.Equal(t, other < 0, mask(got, src, key, pos))
				require.Equal(t, want, got)
				require.Equal(t, other < 0, mask(src, src, key, pos))
				require.Equal(t, want, src, "in place")
			}
		}
	}
}
