package postgres

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
)

// A record is what a notification carries: a payload on a channel of the node that receives it.
type record struct {
	channel string
	payload []byte
}

// maxInline is how many bytes of records a notification carries: in base64, they are less than the
// 8,000 bytes that NOTIFY accepts.
const maxInline = 5900

// Prefixes of the text of a notification.
const (
	inlinePrefix = "=" // records in base64
	rowPrefix    = "@" // the number of a row of the table packet, which has the records
)

// appendRecord appends the lengths and the bytes of a record.
func appendRecord(b []byte, r record) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.channel)))
	b = append(b, r.channel...)
	b = binary.AppendUvarint(b, uint64(len(r.payload)))
	return append(b, r.payload...)
}

// cutRecord returns the first record. It shares memory with b.
func cutRecord(b []byte) (r record, rest []byte, ok bool) {
	channel, b, ok := cutBytes(b)
	if !ok {
		return r, nil, false
	}
	payload, b, ok := cutBytes(b)
	return record{string(channel), payload}, b, ok
}

func cutBytes(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	end := size + int(n) //nolint:gosec // not above len(b)
	return b[size:end], b[end:], true
}

// A notification is what NOTIFY carries to a channel of PostgreSQL.
type notification struct {
	channel string
	text    string
	body    []byte // of a row, if it is too large for a text
}

// A packer puts records into few notifications, in their order.
type packer struct {
	channel       string // of PostgreSQL
	waiting       []byte
	notifications []notification
}

// add adds a record.
func (p *packer) add(channel string, r record) {
	b := appendRecord(nil, r)
	if channel != p.channel || len(p.waiting)+len(b) > maxInline {
		p.flush()
		p.channel = channel
	}
	if len(b) > maxInline {
		p.notifications = append(p.notifications, notification{channel: channel, body: b})
		return
	}
	p.waiting = append(p.waiting, b...)
}

// flush ends the notification.
func (p *packer) flush() {
	if len(p.waiting) == 0 {
		return
	}
	p.notifications = append(p.notifications, notification{channel: p.channel, text: inlinePrefix + base64.StdEncoding.EncodeToString(p.waiting)})
	p.waiting = nil
}

// parseNotification returns the records of a notification, or the number of the row that has them.
func parseNotification(text string) (records []byte, row int64, ok bool) {
	if encoded, isInline := strings.CutPrefix(text, inlinePrefix); isInline {
		records, err := base64.StdEncoding.DecodeString(encoded)
		return records, 0, err == nil
	}
	number, isRow := strings.CutPrefix(text, rowPrefix)
	row, err := strconv.ParseInt(number, 10, 64)
	return nil, row, isRow && err == nil
}
