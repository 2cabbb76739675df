package guides_test

import "testing"

// diagramSizes are at least 11 pixels on a page of 340 pixels, to which a diagram of diagramWidth shrinks on
// a phone.
var diagramSizes = fontSizes{title: 160, text: 145, note: 143}

const diagramWidth = 440 * px

// A stage of the message pipeline, and what it answers to a message that it refuses.
type stage struct{ name, answer, why string }

var stages = []stage{
	{"Size", "RESOURCE_EXHAUSTED", "not retryable, or close 1009"},
	{"Type", "INVALID_ARGUMENT", "the envelope is malformed"},
	{"Rate limit", "RESOURCE_EXHAUSTED", "retryAfterMs: how long to wait"},
	{"Route", "UNIMPLEMENTED", "the type has no handler"},
	{"Concurrency", "RESOURCE_EXHAUSTED", "too many calls in flight"},
	{"Validation", "INVALID_ARGUMENT", "details: the field and the reason"},
	{"Handler", "the handler's error", "its cause is logged, not sent"},
}

// pipeline draws the stages that a message passes.
func pipeline(*testing.T) []byte {
	const (
		left, wide = margin, 128 * px
		high       = 38 * px
		middle     = left + wide/2
		answers    = left + wide + 36*px
		decoding   = 5 // the first stage that reads the payload
	)
	c := canvas{
		title: "What a message passes before its handler", width: diagramWidth, sizes: diagramSizes,
		description: "A message passes seven stages, in this order: size, type, rate limit, route, concurrency, validation and handler. " +
			"The first five do not read the payload. Each stage can refuse the message, with an error of its own.",
	}
	y := c.top("")
	c.text(left, y+12*px, "note", "a message")
	c.text(answers, y+12*px, "note", "refused: the client gets")
	y += 20 * px
	for i, s := range stages {
		from := y
		if i == decoding {
			path(&c.front, "most", "M%d,%dH%d", answers, y+8*px, diagramWidth-margin)
			c.text(answers, y+24*px, "note", "the payload is decoded from here")
			y += 24 * px
		}
		y += 18 * px
		c.arrow("flow", middle, from, middle, y)
		class := "box"
		if s.name == "Rate limit" {
			class = "limit"
		}
		c.box(class, left, y, wide, high)
		c.text(middle, y+24*px, "strong mid", "%s", s.name)
		c.arrow("refused", left+wide, y+high/2, answers-8*px, y+high/2)
		c.text(answers, y+15*px, "code bad", "%s", s.answer)
		c.text(answers, y+33*px, "note", "%s", s.why)
		y += high
	}
	y += 24 * px
	c.text(margin, y, "note", "Each message is charged once, even if it is malformed.")
	return c.file(y + 16*px)
}
