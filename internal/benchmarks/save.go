package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Save is a large request.
type Save struct {
	Room  string `json:"room"`
	Items []Item `json:"items"`
}

func (Save) MessageType() string { return "SAVE" }

// Saved is the reply to Save.
type Saved Save

func (Saved) MessageType() string { return "SAVED" }

// An Item is a part of Save.
type Item struct {
	ID    string   `json:"id"`
	Title string   `json:"title"`
	Note  string   `json:"note"`
	Tags  []string `json:"tags"`
	Price float64  `json:"price"`
	Count int      `json:"count"`
	Done  bool     `json:"done"`
}

// saveBytes is the length of a Save in JSON. It is exceeded by less than an item.
const saveBytes = 16 << 10

var words = strings.Fields(`amber anchor autumn basket beacon bridge candle canyon carbon cedar
	copper cotton dragon ember engine fabric falcon feather forest garden ginger glacier granite harbor
	hazel island ivory jasmine juniper kettle ladder lantern lemon linen marble meadow mirror needle
	nickel ocean olive orchard paper pebble pepper pillow planet pocket prairie quartz rabbit ribbon
	river saddle salmon shadow silver spider summer tablet thunder timber valley velvet walnut window
	winter yellow zephyr`)

// save returns the nth request of 16 KiB. Its texts, numbers and IDs differ from those of all others.
func save(n int) string {
	return fmt.Sprintf(`{"type":"SAVE","meta":{"timestamp":1730000000000,"correlationId":"b7c1-%06d"},"payload":%s}`, n, savePayload(n))
}

// publishSaved returns the nth message of 16 KiB that is published.
func publishSaved(n int) []byte {
	return fmt.Appendf(nil, `{"type":"SAVED","meta":{"timestamp":1730000000000},"payload":%s}`, savePayload(n))
}

func savePayload(n int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), 0)) //nolint:gosec // every run sends the same texts
	text := func(count int) string {
		var picked []string
		for range count {
			picked = append(picked, words[random.IntN(len(words))])
		}
		return strings.Join(picked, " ")
	}
	m := Save{Room: "general"}
	for size := 0; size < saveBytes; {
		item := Item{
			ID:    fmt.Sprintf("%016x", random.Uint64()),
			Title: text(2 + random.IntN(3)),
			Note:  text(4 + random.IntN(12)),
			Tags:  strings.Fields(text(random.IntN(4))),
			Price: float64(random.IntN(100_000)) / 100,
			Count: random.IntN(1000),
			Done:  random.IntN(2) == 0,
		}
		encoded, err := json.Marshal(item)
		check(err)
		size += len(encoded) + 1
		m.Items = append(m.Items, item)
	}
	encoded, err := json.Marshal(m)
	check(err)
	return encoded
}
