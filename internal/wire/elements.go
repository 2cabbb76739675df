package wire

// Elements returns the number of array elements and object members in valid JSON, at all levels.
func Elements(value []byte) int {
	f, n := input(value), 0
	for i := 0; i < len(f); i++ {
		switch f[i] {
		case '"':
			i = f.skipText(i) - 1
		case ',':
			n++
		case '{', '[':
			if next := f.space(i + 1); next < len(f) && f[next] != '}' && f[next] != ']' {
				n++
			}
		}
	}
	return n
}
