package wire

// nesting is the stack of open objects and arrays. It has one bit per level for the kind, so that
// validation neither recurses nor allocates.
type nesting struct {
	objects uint64 // 1 for an object, 0 for an array; the lowest bit is the innermost level
	levels  int    // open levels inside the value
	outside int    // levels around the value
}

func (n *nesting) inObject() bool { return n.objects&1 == 1 }

func (n *nesting) closer() byte {
	if n.inObject() {
		return '}'
	}
	return ']'
}

func (n *nesting) enter(opener byte) error {
	if n.levels+n.outside == MaxDepth {
		return ErrDepth
	}
	n.levels++
	n.objects <<= 1
	if opener == '{' {
		n.objects |= 1
	}
	return nil
}

func (n *nesting) leave() {
	n.levels--
	n.objects >>= 1
}

// value validates a value that is nested in outside objects and arrays.
func (f input) value(i, outside int) (int, error) {
	n := nesting{outside: outside}
	for {
		var ended bool
		var err error
		if i, ended, err = f.begin(i, &n); err != nil {
			return i, err
		}
		if ended {
			if i, err = f.end(i, &n); err != nil || n.levels == 0 {
				return i, err
			}
		}
		if n.inObject() {
			if i, err = f.text(i); err != nil {
				return i, err
			}
			if i, err = f.expect(i, ':'); err != nil {
				return i, err
			}
		}
	}
}

// begin validates a string or a scalar, or enters an object or an array. ended reports that the
// element is complete: a string, a scalar, or an empty object or array whose closer is next.
func (f input) begin(i int, n *nesting) (_ int, ended bool, err error) {
	i = f.space(i)
	if i >= len(f) {
		return i, false, ErrTruncated
	}
	switch f[i] {
	case '"':
		i, err = f.text(i)
		return i, true, err
	case '{', '[':
		if err := n.enter(f[i]); err != nil {
			return i, false, err
		}
		i = f.space(i + 1)
		return i, i < len(f) && f[i] == n.closer(), nil
	default:
		i, err = f.scalar(i)
		return i, true, err
	}
}

// end closes the objects and arrays that end after a value, up to a comma or the outermost level.
func (f input) end(i int, n *nesting) (int, error) {
	for n.levels > 0 {
		i = f.space(i)
		switch {
		case i >= len(f):
			return i, ErrTruncated
		case f[i] == ',':
			return i + 1, nil
		case f[i] != n.closer():
			return i, f.unexpected(i)
		}
		i++
		n.leave()
	}
	return i, nil
}
