package topicname

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// MaxBytes bounds the name of a topic.
const MaxBytes = 256

// BrokenRule returns the rule that the name of a topic or a pattern breaks, or "".
func BrokenRule(name string) string {
	if len(name) == 0 || len(name) > MaxBytes {
		return fmt.Sprintf("must have 1 to %d bytes, not %d", MaxBytes, len(name))
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Sprintf("must be UTF-8 without control characters, unlike %+q", name)
	}
	return ""
}

// Check returns an error if the name of a topic is invalid.
func Check(name string) error {
	if rule := BrokenRule(name); rule != "" {
		return errors.Errorf(errors.InvalidArgument, "a topic's name %s", rule)
	}
	return nil
}
