package internal_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A script is a connection whose other end has written everything already, and reads nothing.
type script struct {
	net.Conn
	*bytes.Reader
}

func (s script) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s script) Write(p []byte) (int, error) { return len(p), nil }
func (script) Close() error                  { return nil }

// FuzzAppend_LikeCoder lets both implementations read arbitrary bytes of a client. They must read
// the same messages, and the same close frame, up to the first frame that the other implementation
// refuses: it also refuses frames that are not masked, and some close codes.
func FuzzAppend_LikeCoder(f *testing.F) {
	for _, seed := range []string{
		"\x81\x82\x00\x00\x00\x00ab\x82\x80\x00\x00\x00\x00\x88\x82\x00\x00\x00\x00\x03\xe8",
		"\x01\x81\x01\x02\x03\x04a\x89\x81\x01\x02\x03\x04p\x80\x87\x01\x02\x03\x04bcdefgh\x88\x80\x00\x00\x00\x00",
		"\x81\xfe\x00\x03\x01\x02\x03\x04abc", "\x81\xff\x00\x00\x00\x00\x00\x00\x00\x01\x01\x02\x03\x04a",
		"\x01\x81\x00\x00\x00\x00a\x88\x85\x00\x00\x00\x00\x03\xe8bye", "\xc1\x80\x00\x00\x00\x00", "\x81\x02ab", "\x00\x80\x00\x00\x00\x00", "\x81\x820000",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ws, err := websocket.Accept(hijacker{httptest.NewRecorder(), script{Reader: bytes.NewReader(stream)}}, wsHandshake(), nil)
		require.NoError(t, err)
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(1 << 16)
		r := wsframe.NewReader(bytes.NewReader(stream), 1<<16, func([]byte) error { return nil })
		for {
			want, wantErr := readCoder(ws)
			if frame, ok := errors.AsType[websocket.CloseError](wantErr); ok {
				_, _, err := r.Append(nil)
				assert.Equal(t, &wsframe.CloseError{Code: int(frame.Code), Reason: frame.Reason}, err)
			}
			if wantErr != nil {
				return
			}
			got, op, err := r.Append(nil)
			if errors.Is(err, io.ErrUnexpectedEOF) { // for the other one, the message ends with the stream
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, string(rune('0'+op))+string(got))
		}
	})
}

// readCoder returns a message behind the digit of its opcode.
func readCoder(ws *websocket.Conn) (string, error) {
	typ, message, err := ws.Read(context.Background())
	return string(rune('0'+int(typ))) + string(message), err
}

// FuzzAppendFrame_WSConnEchoes sends messages to package wsconn, which sends them back.
func FuzzAppendFrame_WSConnEchoes(f *testing.F) {
	f.Add([]byte("text"), false, 1)
	f.Add([]byte("\xff"), true, 126)
	f.Add([]byte("ä"), false, 30_000)
	client := wsconnServer(f)
	f.Fuzz(func(t *testing.T, payload []byte, binary bool, times int) {
		op := wsframe.Text
		if binary {
			op = wsframe.Binary
		} else {
			payload = bytes.ToValidUTF8(payload, nil)
		}
		message := bytes.Repeat(payload, min(max(times, 0), 1<<20/max(len(payload), 1)))
		go client.write(op, string(message))
		back, got, err := client.Append(nil)
		require.NoError(t, err)
		assert.Equal(t, op, got)
		assert.True(t, bytes.Equal(message, back))
	})
}
