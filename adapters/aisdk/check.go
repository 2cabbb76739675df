package aisdk

import (
	"fmt"
	"slices"
	"strings"
)

// A field is one that chunks of a type require. The AI SDK closes the connection if it is missing.
type field struct {
	name    string
	isUnset func(c *Chunk) bool
}

//nolint:gochecknoglobals // constants
var (
	fieldID         = field{"id", func(c *Chunk) bool { return c.ID == "" }}
	fieldDelta      = field{"delta", func(c *Chunk) bool { return c.Delta == nil }}
	fieldToolCall   = field{"toolCallId", func(c *Chunk) bool { return c.ToolCallID == "" }}
	fieldToolName   = field{"toolName", func(c *Chunk) bool { return c.ToolName == "" }}
	fieldInputDelta = field{"inputTextDelta", func(c *Chunk) bool { return c.InputTextDelta == nil }}
	fieldInput      = field{"input", func(c *Chunk) bool { return c.Input == nil }}
	fieldOutput     = field{"output", func(c *Chunk) bool { return c.Output == nil }}
	fieldErrorText  = field{"errorText", func(c *Chunk) bool { return c.ErrorText == "" }}
	fieldApproval   = field{"approvalId", func(c *Chunk) bool { return c.ApprovalID == "" }}
	fieldApproved   = field{"approved", func(c *Chunk) bool { return c.Approved == nil }}
	fieldSource     = field{"sourceId", func(c *Chunk) bool { return c.SourceID == "" }}
	fieldURL        = field{"url", func(c *Chunk) bool { return c.URL == "" }}
	fieldMediaType  = field{"mediaType", func(c *Chunk) bool { return c.MediaType == "" }}
	fieldTitle      = field{"title", func(c *Chunk) bool { return c.Title == "" }}
	fieldKind       = field{"kind", func(c *Chunk) bool { return c.Kind == "" }}
	fieldMetadata   = field{"messageMetadata", func(c *Chunk) bool { return c.MessageMetadata == nil }}
	fieldData       = field{"data", func(c *Chunk) bool { return c.Data == nil }}

	// requiredFields has the types of chunks that can be emitted, except for data, with their
	// fields.
	requiredFields = map[string][]field{
		"start": nil, "finish": nil, "start-step": nil, "finish-step": nil, "reset-step": nil,
		"message-metadata":       {fieldMetadata},
		"text-start":             {fieldID},
		"text-delta":             {fieldID, fieldDelta},
		"text-end":               {fieldID},
		"reasoning-start":        {fieldID},
		"reasoning-delta":        {fieldID, fieldDelta},
		"reasoning-end":          {fieldID},
		"tool-input-start":       {fieldToolCall, fieldToolName},
		"tool-input-delta":       {fieldToolCall, fieldInputDelta},
		"tool-input-available":   {fieldToolCall, fieldToolName, fieldInput},
		"tool-input-error":       {fieldToolCall, fieldToolName, fieldInput, fieldErrorText},
		"tool-output-available":  {fieldToolCall, fieldOutput},
		"tool-output-error":      {fieldToolCall, fieldErrorText},
		"tool-output-denied":     {fieldToolCall},
		"tool-approval-request":  {fieldApproval, fieldToolCall},
		"tool-approval-response": {fieldApproval, fieldApproved},
		"source-url":             {fieldSource, fieldURL},
		"source-document":        {fieldSource, fieldMediaType, fieldTitle},
		"file":                   {fieldURL, fieldMediaType},
		"reasoning-file":         {fieldURL, fieldMediaType},
		"custom":                 {fieldKind},
	}

	finishReasons = []FinishReason{"", FinishStop, FinishLength, FinishContentFilter, FinishToolCalls, FinishError, FinishOther}
)

// check returns an error if the AI SDK would not accept the fields of a chunk.
func (c *Chunk) check() error {
	required, known := requiredFields[c.Type]
	if name, isData := strings.CutPrefix(c.Type, dataPrefix); isData && name != "" {
		required, known = []field{fieldData}, true
	}
	switch {
	case c.err != nil:
		return fmt.Errorf("a value of it cannot be encoded: %w", c.err)
	case !known:
		return fmt.Errorf("its type is unknown; it must be one that a function of package aisdk returns")
	case !slices.Contains(finishReasons, c.FinishReason):
		return fmt.Errorf("its finishReason is %q; it must be one of %q", c.FinishReason, finishReasons[1:])
	case c.Transient && !strings.HasPrefix(c.Type, dataPrefix):
		return fmt.Errorf("it is transient; only data can be")
	}
	for _, f := range required {
		if f.isUnset(c) {
			return fmt.Errorf("it needs a field %s, which is not empty", f.name)
		}
	}
	return nil
}
