package aisdk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An order knows the chunks of one answer so far, and which may follow: those that the AI SDK
// accepts.
type order struct {
	started, finished, step bool

	texts, reasonings map[string]bool // that are open
	tools             map[string]*toolCall
	approvals         map[string]string // the tool call of each
}

// A toolCall is one of an answer.
type toolCall struct {
	name   string
	phase  toolPhase
	inStep bool // it began in this step
}

type toolPhase int

const (
	inputStreams toolPhase = iota
	inputComplete
	toolEnded
)

func newOrder() *order {
	return &order{
		texts: map[string]bool{}, reasonings: map[string]bool{},
		tools: map[string]*toolCall{}, approvals: map[string]string{},
	}
}

// add adds a chunk, or returns an error if the AI SDK would not accept it.
func (o *order) add(c *Chunk) error {
	err := c.check()
	switch {
	case err != nil:
	case o.finished:
		err = fmt.Errorf("it follows a finish, which must be the last chunk")
	case c.Type == "start" && o.started:
		err = fmt.Errorf("it is the second one; an answer has one start")
	case c.Type != "start" && !o.started:
		err = fmt.Errorf("it is before the start, which must be the first chunk")
	case c.ToolCallID != "":
		err = o.addTool(c)
	default:
		err = o.addOther(c)
	}
	if err != nil {
		return fmt.Errorf("aisdk: the chunk %q cannot be sent: %w", c.Type, err)
	}
	return nil
}

func (o *order) addOther(c *Chunk) error {
	kind, phase, _ := strings.Cut(c.Type, "-")
	switch {
	case c.Type == "start":
		o.started = true
	case c.Type == "finish":
		o.finished = true
		return o.checkClosed()
	case phase == "step":
		return o.addStep(kind)
	case kind == "text":
		return o.addText(o.texts, phase, c.ID)
	case kind == "reasoning" && phase != "file":
		return o.addText(o.reasonings, phase, c.ID)
	case c.Type == "tool-approval-response" && o.approvals[c.ApprovalID] == "":
		return fmt.Errorf("there is no request for the approval %q", c.ApprovalID)
	}
	return nil
}

// addStep adds a chunk about a step: "start", "finish" or "reset".
func (o *order) addStep(verb string) error {
	if o.step == (verb == "start") {
		return fmt.Errorf("it must alternate: start-step, and then finish-step")
	}
	if verb == "reset" {
		clear(o.texts)
		clear(o.reasonings)
		maps.DeleteFunc(o.tools, func(_ string, tool *toolCall) bool { return tool.inStep })
		return nil
	}
	o.step = verb == "start"
	for _, tool := range o.tools {
		tool.inStep = false
	}
	return o.checkTexts()
}

// addText adds a chunk of a text or a reasoning: "start", "delta" or "end".
func (o *order) addText(open map[string]bool, phase, id string) error {
	if open[id] == (phase == "start") {
		return fmt.Errorf("the part %q needs a start, then deltas, and then an end", id)
	}
	switch phase {
	case "start":
		open[id] = true
	case "end":
		delete(open, id)
	}
	return nil
}

// addTool adds a chunk of a tool call.
func (o *order) addTool(c *Chunk) error {
	tool := o.tools[c.ToolCallID]
	if strings.HasPrefix(c.Type, "tool-input-") {
		return o.addToolInput(tool, c)
	}
	switch {
	case tool == nil || tool.phase == inputStreams:
		return fmt.Errorf("the tool call %q has no input yet", c.ToolCallID)
	case tool.phase == toolEnded:
		return fmt.Errorf("the tool call %q has ended", c.ToolCallID)
	case c.Type == "tool-approval-request":
		o.approvals[c.ApprovalID] = c.ToolCallID
	case !c.Preliminary:
		tool.phase = toolEnded
	}
	return nil
}

func (o *order) addToolInput(tool *toolCall, c *Chunk) error {
	phase := inputComplete
	switch c.Type {
	case "tool-input-start":
		if tool != nil {
			return fmt.Errorf("the tool call %q has begun", c.ToolCallID)
		}
		phase = inputStreams
	case "tool-input-delta":
		if tool == nil || tool.phase != inputStreams {
			return fmt.Errorf("the tool call %q needs a tool-input-start, and no input yet", c.ToolCallID)
		}
		return nil
	case "tool-input-error":
		phase = toolEnded
	}
	if tool != nil && tool.phase != inputStreams {
		return fmt.Errorf("the tool call %q has its input", c.ToolCallID)
	}
	o.tools[c.ToolCallID] = &toolCall{name: c.ToolName, phase: phase, inStep: true}
	return nil
}

// checkClosed returns an error if something is open that must be closed before the finish.
func (o *order) checkClosed() error {
	if o.step {
		return fmt.Errorf("the step is open; it needs a finish-step")
	}
	return o.checkTexts()
}

func (o *order) checkTexts() error {
	if open := slices.Concat(sorted(o.texts), sorted(o.reasonings)); len(open) > 0 {
		return fmt.Errorf("the parts %q are open; each needs an end", open)
	}
	return nil
}

// closing returns the chunks that close what is open. A tool call whose input is incomplete ends
// with errorText.
func (o *order) closing(errorText string) (chunks []Chunk) {
	for _, id := range sorted(o.reasonings) {
		chunks = append(chunks, ReasoningEnd(id))
	}
	for _, id := range sorted(o.texts) {
		chunks = append(chunks, TextEnd(id))
	}
	for _, id := range sorted(o.tools) {
		if tool := o.tools[id]; tool.phase == inputStreams {
			chunks = append(chunks, ToolInputError(id, tool.name, nil, errorText))
		}
	}
	if o.step {
		chunks = append(chunks, FinishStep())
	}
	return chunks
}

// sorted returns the keys of a set, so that equal answers end with equal chunks.
func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }
