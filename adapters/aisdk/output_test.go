package aisdk_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// An emission is a chunk, and a part of the error that Emit must return for it; "" is none.
type emission struct {
	chunk aisdk.Chunk
	err   string
}

func ok(chunks ...aisdk.Chunk) (all []emission) {
	for _, c := range chunks {
		all = append(all, emission{chunk: c})
	}
	return all
}

// produce runs a producer in a run, and returns what a page receives of it.
func produce(t *testing.T, f func(out *aisdk.Output) error) (a answer) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{Answer: func(_ context.Context, _ *aisdk.Request, out *aisdk.Output) error { return f(out) }})[0].open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{}))
		a = p.read("1")
	})
	return a
}

// TestEmit_ChecksTheOrder of the chunks, and their fields.
func TestEmit_ChecksTheOrder(t *testing.T) {
	start, step := aisdk.Start("", nil), aisdk.StartStep()
	unencodable := aisdk.Data("x", func() {})
	invalid := aisdk.TextStart("1")
	invalid.Transient = true
	preliminary := aisdk.ToolOutputAvailable("t", 1)
	preliminary.Preliminary = true
	for name, emissions := range map[string][]emission{
		"nothing before the start":        {{aisdk.StartStep(), "start"}, {aisdk.TextStart("1"), "start"}, {aisdk.Finish("stop"), "start"}},
		"one start":                       append(ok(start), emission{start, "second"}),
		"nothing after the finish":        append(ok(start, aisdk.Finish(aisdk.FinishStop)), emission{step, "finish"}, emission{aisdk.Finish(""), "finish"}),
		"a finish closes the step":        append(ok(start, step), emission{aisdk.Finish(""), "step"}),
		"a finish closes the texts":       append(ok(start, aisdk.TextStart("1")), emission{aisdk.Finish(""), `"1"`}),
		"steps alternate":                 append(ok(start), emission{aisdk.FinishStep(), "alternate"}, emission{aisdk.ResetStep(), "alternate"}, emission{step, ""}, emission{step, "alternate"}),
		"a step closes the texts":         append(ok(start, step, aisdk.ReasoningStart("1")), emission{aisdk.FinishStep(), `"1"`}),
		"a delta needs a start":           append(ok(start), emission{aisdk.TextDelta("1", "a"), "start"}, emission{aisdk.ReasoningDelta("1", "a"), "start"}, emission{aisdk.TextEnd("1"), "start"}),
		"a text starts once":              append(ok(start, aisdk.TextStart("1")), emission{aisdk.TextStart("1"), "start"}),
		"texts and reasonings differ":     append(ok(start, aisdk.TextStart("1")), emission{aisdk.ReasoningEnd("1"), "start"}),
		"a delta after the end":           append(ok(start, aisdk.TextStart("1"), aisdk.TextDelta("1", ""), aisdk.TextEnd("1")), emission{aisdk.TextDelta("1", ""), "start"}),
		"a reset removes the parts":       append(ok(start, step, aisdk.TextStart("1"), aisdk.ToolInputStart("t", "x"), aisdk.ResetStep()), emission{aisdk.TextDelta("1", ""), "start"}, emission{aisdk.ToolInputStart("t", "x"), ""}),
		"a tool delta needs a start":      append(ok(start), emission{aisdk.ToolInputDelta("t", "{"), "tool-input-start"}),
		"an input comes once":             append(ok(start, aisdk.ToolInputAvailable("t", "x", nil)), emission{aisdk.ToolInputAvailable("t", "x", nil), "input"}, emission{aisdk.ToolInputStart("t", "x"), "begun"}, emission{aisdk.ToolInputDelta("t", "{"), "input"}, emission{aisdk.ToolInputError("t", "x", nil, "e"), "input"}),
		"an output needs the input":       append(ok(start, aisdk.ToolInputStart("t", "x")), emission{aisdk.ToolOutputAvailable("t", 1), "no input"}, emission{aisdk.ToolOutputError("u", "e"), "no input"}, emission{aisdk.ToolOutputDenied("u"), "no input"}, emission{aisdk.ToolApprovalRequest("a", "u"), "no input"}),
		"an output comes once":            append(ok(start, aisdk.ToolInputAvailable("t", "x", nil), preliminary, preliminary, aisdk.ToolOutputAvailable("t", nil)), emission{aisdk.ToolOutputError("t", "e"), "ended"}),
		"an invalid input has no output":  append(ok(start, aisdk.ToolInputError("t", "x", nil, "e")), emission{aisdk.ToolOutputAvailable("t", 1), "ended"}),
		"an approval needs its request":   append(ok(start, aisdk.ToolInputAvailable("t", "x", nil)), emission{aisdk.ToolApprovalResponse("a", true), "request"}, emission{aisdk.ToolApprovalRequest("a", "t"), ""}, emission{aisdk.ToolApprovalResponse("a", true), ""}),
		"unknown types":                   append(ok(start), emission{aisdk.Chunk{Type: "abort"}, "unknown"}, emission{aisdk.Chunk{Type: "data-"}, "unknown"}, emission{aisdk.Chunk{}, "unknown"}),
		"unknown reasons":                 append(ok(start), emission{aisdk.Finish("interrupted"), "finishReason"}),
		"values that cannot be encoded":   append(ok(start), emission{unencodable, "encoded"}),
		"transient parts that are stored": append(ok(start), emission{invalid, "transient"}),
		"missing fields": append(ok(start), emission{aisdk.TextStart(""), "id"}, emission{aisdk.Chunk{Type: "text-delta", ID: "1"}, "delta"},
			emission{aisdk.ToolInputStart("t", ""), "toolName"}, emission{aisdk.ToolInputStart("", "x"), "toolCallId"},
			emission{aisdk.ToolOutputError("t", ""), "errorText"}, emission{aisdk.SourceURL("", "u"), "sourceId"}, emission{aisdk.SourceURL("s", ""), "url"},
			emission{aisdk.SourceDocument("s", "", "t"), "mediaType"}, emission{aisdk.SourceDocument("s", "m", ""), "title"}, emission{aisdk.Custom(""), "kind"},
			emission{aisdk.Chunk{Type: "data-x"}, "data"}, emission{aisdk.Chunk{Type: "message-metadata"}, "messageMetadata"},
			emission{aisdk.ToolApprovalRequest("", "t"), "approvalId"}, emission{aisdk.Chunk{Type: "tool-approval-response", ApprovalID: "a"}, "approved"}),
	} {
		var want []string
		a := produce(t, func(out *aisdk.Output) error {
			for i, e := range emissions {
				err := out.Emit(e.chunk)
				if e.err == "" {
					assert.NoError(t, err, "%s: chunk %d", name, i)
					want = append(want, e.chunk.Type)
					continue
				}
				assert.ErrorContains(t, err, e.err, "%s: chunk %d", name, i)
			}
			return nil
		})
		require.GreaterOrEqual(t, len(a.types), len(want), "%s: %+v", name, a)
		assert.Equal(t, want, append([]string(nil), a.types[:len(want)]...), "%s: no chunk with an error is sent", name)
	}
}

// TestOutput_OpensAndClosesParts for Text and Reasoning.
func TestOutput_OpensAndClosesParts(t *testing.T) {
	a := produce(t, func(out *aisdk.Output) error {
		for _, f := range []func() error{
			func() error { return out.Reasoning("Hm") },
			func() error { return out.Reasoning(".\xff") },
			func() error { return out.Text("Good ") },
			func() error { return out.Emit(aisdk.Data("x", 1)) },
			func() error { return out.Text("morning") },
		} {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
	assert.Equal(t, "Good morning", a.text)
	var types []string
	for i, typ := range a.types {
		if i == 0 || typ != a.types[i-1] { // deltas may be merged
			types = append(types, typ)
		}
	}
	assert.Equal(t, []string{
		"start", "reasoning-start", "reasoning-delta", "reasoning-end", "text-start", "text-delta", "text-end",
		"data-x", "text-start", "text-delta", "text-end", "finish",
	}, types)
	assert.Equal(t, "end", a.end.Type)
	assert.Equal(t, "stop", a.chunks[len(a.chunks)-1]["finishReason"])
	ids := map[any]bool{}
	for _, c := range a.chunks {
		if c["type"] == "text-start" || c["type"] == "reasoning-start" {
			assert.False(t, ids[c["id"]], "IDs of parts differ")
			ids[c["id"]] = true
		}
	}
}

// TestChunk_JSON: required fields are sent even if they are empty, and no field is null unless it
// may be.
func TestChunk_JSON(t *testing.T) {
	delta := aisdk.TextDelta("1", "")
	delta.ProviderMetadata = map[string]map[string]any{"openai": nil}
	for want, c := range map[string]aisdk.Chunk{
		`{"type":"text-delta","id":"1","delta":"","providerMetadata":{"openai":{}}}`:   delta,
		`{"type":"tool-input-delta","toolCallId":"t","inputTextDelta":""}`:             aisdk.ToolInputDelta("t", ""),
		`{"type":"tool-input-available","toolCallId":"t","toolName":"x","input":null}`: aisdk.ToolInputAvailable("t", "x", nil),
		`{"type":"tool-output-available","toolCallId":"t","output":null}`:              aisdk.ToolOutputAvailable("t", nil),
		`{"type":"tool-approval-response","approvalId":"a","approved":false}`:          aisdk.ToolApprovalResponse("a", false),
		`{"type":"data-x","data":null}`:                                                aisdk.Data("x", nil),
		`{"type":"data-x","data":12345678901234567890}`:                                aisdk.Data("x", uint64(12345678901234567890)),
		`{"type":"start"}`:  aisdk.Start("", nil),
		`{"type":"finish"}`: aisdk.Finish(""),
		`{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"Notes"}`: aisdk.SourceDocument("s", "text/plain", "Notes"),
	} {
		text, err := jsonv2.Marshal(c)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text))
	}
}

func TestMergeDeltas(t *testing.T) {
	metadata := func(c aisdk.Chunk, value string) aisdk.Chunk {
		c.ProviderMetadata = map[string]map[string]any{"p": {"k": value}}
		return c
	}
	long := strings.Repeat("x", 40<<10)
	for name, test := range map[string]struct {
		a, b, want aisdk.Chunk
		merged     bool
	}{
		"texts":                  {aisdk.TextDelta("1", "a"), aisdk.TextDelta("1", "b"), aisdk.TextDelta("1", "ab"), true},
		"reasonings":             {aisdk.ReasoningDelta("1", "a"), aisdk.ReasoningDelta("1", ""), aisdk.ReasoningDelta("1", "a"), true},
		"inputs":                 {aisdk.ToolInputDelta("1", "a"), aisdk.ToolInputDelta("1", "b"), aisdk.ToolInputDelta("1", "ab"), true},
		"the latest metadata":    {metadata(aisdk.TextDelta("1", "a"), "x"), metadata(aisdk.TextDelta("1", "b"), "y"), metadata(aisdk.TextDelta("1", "ab"), "y"), true},
		"metadata of the first":  {metadata(aisdk.TextDelta("1", "a"), "x"), aisdk.TextDelta("1", "b"), metadata(aisdk.TextDelta("1", "ab"), "x"), true},
		"different texts":        {aisdk.TextDelta("1", "a"), aisdk.TextDelta("2", "b"), aisdk.TextDelta("1", "a"), false},
		"different tool calls":   {aisdk.ToolInputDelta("1", "a"), aisdk.ToolInputDelta("2", "b"), aisdk.ToolInputDelta("1", "a"), false},
		"text and reasoning":     {aisdk.TextDelta("1", "a"), aisdk.ReasoningDelta("1", "b"), aisdk.TextDelta("1", "a"), false},
		"other chunks":           {aisdk.TextEnd("1"), aisdk.TextEnd("1"), aisdk.TextEnd("1"), false},
		"more than 64 KiB":       {aisdk.TextDelta("1", long), aisdk.TextDelta("1", long), aisdk.TextDelta("1", long), false},
		"a delta without a text": {aisdk.Chunk{Type: "text-delta", ID: "1"}, aisdk.TextDelta("1", "b"), aisdk.Chunk{Type: "text-delta", ID: "1"}, false},
	} {
		got, ok := aisdk.MergeDeltas(test.a, test.b)
		assert.Equal(t, test.merged, ok, name)
		if ok {
			assert.Equal(t, test.want, got, name)
		}
	}
}
