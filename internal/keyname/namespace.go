package keyname

import (
	"fmt"
	"strings"
)

// maxNamespaceBytes bounds what a namespace adds to each key.
const maxNamespaceBytes = 64

// CheckNamespace returns an error unless a namespace can begin keys: it contains none of the separators
// that the functions of this package write.
func CheckNamespace(name string) error {
	if name == "" || len(name) > maxNamespaceBytes || strings.ContainsFunc(name, isNoNamespaceChar) {
		return fmt.Errorf("the namespace is %q; it must have 1 to %d letters, digits, dots, hyphens and underscores", name, maxNamespaceBytes)
	}
	return nil
}

func isNoNamespaceChar(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}
