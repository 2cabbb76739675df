package aisdk

// maxMerged bounds a merged delta, so that a slow connection takes each frame soon.
const maxMerged = 64 << 10

// MergeDeltas merges two neighboring deltas of one text, one reasoning, or the input of one tool
// call, up to 64 KiB. It is for Options.Merge of package run.
func MergeDeltas(first, second Chunk) (merged Chunk, ok bool) {
	if first.Type != second.Type || first.ID != second.ID || first.ToolCallID != second.ToolCallID {
		return first, false
	}
	merged = first
	switch first.Type {
	case "tool-input-delta":
		merged.InputTextDelta, ok = join(first.InputTextDelta, second.InputTextDelta)
	case "text-delta", "reasoning-delta":
		merged.Delta, ok = join(first.Delta, second.Delta)
	}
	if second.ProviderMetadata != nil { // the page keeps the latest one
		merged.ProviderMetadata = second.ProviderMetadata
	}
	return merged, ok
}

func join(a, b *string) (*string, bool) {
	if a == nil || b == nil || len(*a)+len(*b) > maxMerged {
		return nil, false
	}
	text := *a + *b
	return &text, true
}
