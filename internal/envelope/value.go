package envelope

// nesting is where in a value the check is. One bit for every level tells
// objects from arrays, so that the check neither recurses nor allocates.
type nesting struct {
	objects uint64 // the innermost level is the lowest bit
	levels  int    // inside the value
	outside int    // around it
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

// value checks a value that stands inside outside objects and arrays.
func (f frame) value(i, outside int) (int, error) {
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

// begin checks a string or a scalar, or enters an object or an array. In the
// first case, and if there is nothing inside, a value has ended.
func (f frame) begin(i int, n *nesting) (_ int, ended bool, err error) {
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

// end leaves what ends behind a value, up to a comma or the last level.
func (f frame) end(i int, n *nesting) (int, error) {
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
