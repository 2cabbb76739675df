package wire

// A Meta holds the members of meta that a server uses.
type Meta struct {
	CorrelationID []byte // at most MaxNameBytes; empty if there is none or it is unknown
	TimeoutMs     int64  // of a call, from 1 to maxInteger; 0 if there is none
	Credit        int64  // items that the client grants a stream, from 0 to maxInteger
	HasCredit     bool   // Credit is present
	Ack           bool   // the client asks for an acknowledgment

	read metaField // members that have been read
}

// A metaField is a set of members of meta.
type metaField uint8

const (
	fieldCorrelationID metaField = 1 << iota
	fieldTimeout
	fieldAck
	fieldCredit
)

// maxInteger is the largest integer that every JSON parser reads exactly (RFC 8259, section 6).
const maxInteger = 1<<53 - 1

// metaFieldOf returns the field of a key, or 0 if the server does not use it.
func metaFieldOf(key []byte) metaField {
	switch string(key) {
	case "correlationId":
		return fieldCorrelationID
	case "timeoutMs":
		return fieldTimeout
	case "ack":
		return fieldAck
	case "credit":
		return fieldCredit
	default:
		return 0
	}
}

// readField reads the value of a field at i.
func (m *Meta) readField(f input, field metaField, i int) (end int, err error) {
	m.read |= field
	switch field {
	case fieldCorrelationID:
		return f.name(i, &m.CorrelationID, 0, ErrCorrelationID)
	case fieldTimeout:
		return f.integer(i, &m.TimeoutMs, 1, ErrTimeout)
	case fieldCredit:
		end, err = f.integer(i, &m.Credit, 0, ErrCredit)
		m.HasCredit = err == nil
		return end, err
	default:
		return f.boolean(i, &m.Ack, ErrAck)
	}
}

// integer reads an integer from minimum to maxInteger into dst. It returns invalid for any other
// value.
func (f input) integer(i int, dst *int64, minimum int64, invalid error) (int, error) {
	if i >= len(f) {
		return i, ErrTruncated
	}
	end, err := f.scalar(i)
	if end >= len(f) {
		return end, ErrTruncated // the number may continue
	}
	n, digits := int64(0), f[i:end]
	for _, c := range digits {
		if n = 10*n + int64(c-'0'); c < '0' || c > '9' || n > maxInteger {
			return i, invalid
		}
	}
	if err != nil || n < minimum {
		return i, invalid
	}
	*dst = n
	return end, nil
}

// boolean reads true or false into dst. It returns invalid for any other value.
func (f input) boolean(i int, dst *bool, invalid error) (int, error) {
	if i >= len(f) {
		return i, ErrTruncated
	}
	end, err := f.scalar(i)
	switch {
	case end >= len(f):
		return end, ErrTruncated
	case err != nil || f[i] != 't' && f[i] != 'f':
		return i, invalid
	}
	*dst = f[i] == 't'
	return end, nil
}
