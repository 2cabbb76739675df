package runs

import (
	"encoding/json"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// An entry is a publication in the log of a run. It has the fence of the owner that has appended it, and
// one of the others. Entries after an end, and those with a lower fence than one before them, do not
// count: the log has one order, so all nodes agree.
type entry struct {
	Fence uint64 `json:"f"`

	First uint64            `json:"n,omitzero"` // the number of the first item
	Items []json.RawMessage `json:"i,omitzero"`

	Stop   *stopRequest `json:"stop,omitzero"`
	Resume string       `json:"resume,omitzero"` // the node that goes on
	End    *End         `json:"end,omitzero"`
}

// A stopRequest asks the owner to stop.
type stopRequest struct {
	By string `json:"by,omitzero"`
}

func parseEntry(packet []byte) (e entry, ok bool) {
	return e, jsonv2.Unmarshal(packet, &e) == nil
}
