package contract

import (
	"reflect"
	"strings"
)

// comments are what Options.Comments has returned, by package.
type comments struct {
	read     func(pkgPath string) map[string]string
	packages map[string]map[string]string
}

// ofType returns the comment of a type.
func (c *comments) ofType(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[") // of a generic type
	return c.of(t.PkgPath(), name)
}

// ofField returns the comment of a field that is a member of the object of a struct, perhaps in an embedded one.
func (c *comments) ofField(root reflect.Type, f field) string {
	t := root
	for _, i := range f.json.Index[:len(f.json.Index)-1] {
		t = indirect(t.Field(i).Type)
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return c.of(t.PkgPath(), name+"."+f.Name)
}

func (c *comments) of(pkgPath, name string) string {
	if c.read == nil || pkgPath == "" {
		return ""
	}
	all, ok := c.packages[pkgPath]
	if !ok {
		if c.packages == nil {
			c.packages = map[string]map[string]string{}
		}
		all = c.read(pkgPath)
		c.packages[pkgPath] = all
	}
	return strings.TrimSpace(all[name])
}
