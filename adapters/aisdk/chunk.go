package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A Chunk is a part of an answer, as the AI SDK has it (UIMessageChunk). The functions of this
// package return chunks with their required fields, such as [TextDelta]; the others can be set.
// Fields with the zero value are not sent.
type Chunk struct {
	Type string `json:"type"`

	ID             string  `json:"id,omitzero"`             // of a text, a reasoning, or data, which it replaces
	Delta          *string `json:"delta,omitzero"`          // of a text or a reasoning
	ToolCallID     string  `json:"toolCallId,omitzero"`     // of a tool call
	ToolName       string  `json:"toolName,omitzero"`       // of a tool call
	InputTextDelta *string `json:"inputTextDelta,omitzero"` // of the input of a tool call, which is JSON
	ErrorText      string  `json:"errorText,omitzero"`      // of a tool call; everyone who may read the run sees it
	ApprovalID     string  `json:"approvalId,omitzero"`     // of an approval
	Approved       *bool   `json:"approved,omitzero"`       // of an approval
	Reason         string  `json:"reason,omitzero"`         // of an approval, or of an abort

	Input  json.RawMessage `json:"input,omitzero"`  // of a tool call
	Output json.RawMessage `json:"output,omitzero"` // of a tool call
	Data   json.RawMessage `json:"data,omitzero"`

	ProviderExecuted bool `json:"providerExecuted,omitzero"` // the provider of the model executes the tool
	Dynamic          bool `json:"dynamic,omitzero"`          // the page does not know the tool
	Preliminary      bool `json:"preliminary,omitzero"`      // another output of the tool call follows

	SourceID  string `json:"sourceId,omitzero"`
	URL       string `json:"url,omitzero"`
	MediaType string `json:"mediaType,omitzero"`
	Title     string `json:"title,omitzero"`
	Filename  string `json:"filename,omitzero"`
	Kind      string `json:"kind,omitzero"`

	// Transient data is not part of the message, and is not stored: it reaches the pages that are
	// attached on the node of the run when it is emitted.
	Transient bool `json:"transient,omitzero"`

	MessageID       string          `json:"messageId,omitzero"`
	MessageMetadata json.RawMessage `json:"messageMetadata,omitzero"` // merged into that of the message
	FinishReason    FinishReason    `json:"finishReason,omitzero"`

	ProviderMetadata map[string]map[string]any `json:"providerMetadata,omitzero"` // by the provider's name
	ToolMetadata     map[string]any            `json:"toolMetadata,omitzero"`

	err error // of a value that cannot be encoded
}

// MessageType returns "aisdk.chunk".
func (Chunk) MessageType() string { return "aisdk.chunk" }

// A FinishReason says why a model has ended its answer.
type FinishReason string

// The reasons. The AI SDK closes the connection if it receives another one.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content-filter"
	FinishToolCalls     FinishReason = "tool-calls"
	FinishError         FinishReason = "error"
	FinishOther         FinishReason = "other"
)

// Start begins the answer. messageID is the ID of the page's message; if it is "", [Output.Emit]
// sets that of the run. metadata may be nil.
func Start(messageID string, metadata any) Chunk {
	c := Chunk{Type: "start", MessageID: messageID}
	if metadata != nil {
		c.MessageMetadata = c.encode(metadata)
	}
	return c
}

// Finish ends the answer.
func Finish(reason FinishReason) Chunk { return Chunk{Type: "finish", FinishReason: reason} }

// MessageMetadata merges metadata into that of the message.
func MessageMetadata(metadata any) Chunk {
	c := Chunk{Type: "message-metadata"}
	c.MessageMetadata = c.encode(metadata)
	return c
}

// StartStep begins a step, which is one call of a model.
func StartStep() Chunk { return Chunk{Type: "start-step"} }

// FinishStep ends a step.
func FinishStep() Chunk { return Chunk{Type: "finish-step"} }

// ResetStep removes the parts of the step, for another attempt.
func ResetStep() Chunk { return Chunk{Type: "reset-step"} }

// TextStart begins a text.
func TextStart(id string) Chunk { return Chunk{Type: "text-start", ID: id} }

// TextDelta continues a text.
func TextDelta(id, delta string) Chunk {
	return Chunk{Type: "text-delta", ID: id, Delta: valid(delta)}
}

// TextEnd ends a text.
func TextEnd(id string) Chunk { return Chunk{Type: "text-end", ID: id} }

// ReasoningStart begins a reasoning.
func ReasoningStart(id string) Chunk { return Chunk{Type: "reasoning-start", ID: id} }

// ReasoningDelta continues a reasoning.
func ReasoningDelta(id, delta string) Chunk {
	return Chunk{Type: "reasoning-delta", ID: id, Delta: valid(delta)}
}

// ReasoningEnd ends a reasoning.
func ReasoningEnd(id string) Chunk { return Chunk{Type: "reasoning-end", ID: id} }

// ToolInputStart begins the input of a tool call.
func ToolInputStart(toolCallID, toolName string) Chunk {
	return Chunk{Type: "tool-input-start", ToolCallID: toolCallID, ToolName: toolName}
}

// ToolInputDelta continues the input of a tool call, which is JSON.
func ToolInputDelta(toolCallID, delta string) Chunk {
	return Chunk{Type: "tool-input-delta", ToolCallID: toolCallID, InputTextDelta: valid(delta)}
}

// ToolInputAvailable has the whole input of a tool call.
func ToolInputAvailable(toolCallID, toolName string, input any) Chunk {
	c := Chunk{Type: "tool-input-available", ToolCallID: toolCallID, ToolName: toolName}
	c.Input = c.encode(input)
	return c
}

// ToolInputError ends a tool call whose input is invalid.
func ToolInputError(toolCallID, toolName string, input any, errorText string) Chunk {
	c := Chunk{Type: "tool-input-error", ToolCallID: toolCallID, ToolName: toolName, ErrorText: errorText}
	c.Input = c.encode(input)
	return c
}

// ToolOutputAvailable has the output of a tool call.
func ToolOutputAvailable(toolCallID string, output any) Chunk {
	c := Chunk{Type: "tool-output-available", ToolCallID: toolCallID}
	c.Output = c.encode(output)
	return c
}

// ToolOutputError ends a tool call that has failed.
func ToolOutputError(toolCallID, errorText string) Chunk {
	return Chunk{Type: "tool-output-error", ToolCallID: toolCallID, ErrorText: errorText}
}

// ToolOutputDenied ends a tool call that was not approved.
func ToolOutputDenied(toolCallID string) Chunk {
	return Chunk{Type: "tool-output-denied", ToolCallID: toolCallID}
}

// ToolApprovalRequest asks whether a tool may be called.
func ToolApprovalRequest(approvalID, toolCallID string) Chunk {
	return Chunk{Type: "tool-approval-request", ApprovalID: approvalID, ToolCallID: toolCallID}
}

// ToolApprovalResponse answers a request.
func ToolApprovalResponse(approvalID string, approved bool) Chunk {
	return Chunk{Type: "tool-approval-response", ApprovalID: approvalID, Approved: &approved}
}

// SourceURL names a page that the answer is based on.
func SourceURL(sourceID, url string) Chunk {
	return Chunk{Type: "source-url", SourceID: sourceID, URL: url}
}

// SourceDocument names a document that the answer is based on.
func SourceDocument(sourceID, mediaType, title string) Chunk {
	return Chunk{Type: "source-document", SourceID: sourceID, MediaType: mediaType, Title: title}
}

// File has a file, as a URL.
func File(url, mediaType string) Chunk { return Chunk{Type: "file", URL: url, MediaType: mediaType} }

// ReasoningFile has a file of a reasoning, as a URL.
func ReasoningFile(url, mediaType string) Chunk {
	return Chunk{Type: "reasoning-file", URL: url, MediaType: mediaType}
}

// Custom has a part of a provider. The kind is the provider's name and that of the part, with a dot
// between them.
func Custom(kind string) Chunk { return Chunk{Type: "custom", Kind: kind} }

// dataPrefix begins the types of data chunks.
const dataPrefix = "data-"

// Data has data of the application. With an ID, it replaces the data with the same name and ID.
func Data(name string, data any) Chunk {
	c := Chunk{Type: dataPrefix + name}
	c.Data = c.encode(data)
	return c
}

// encode encodes a value of the application.
func (c *Chunk) encode(value any) json.RawMessage {
	text, err := jsonv2.Marshal(value, jsonv2.AllowInvalidUTF8(true))
	if err != nil {
		c.err = err
	}
	return text
}

// valid replaces what is not UTF-8: models may split a character between two deltas.
func valid(delta string) *string {
	delta = strings.ToValidUTF8(delta, "\uFFFD")
	return &delta
}
