package contract

import (
	"fmt"
	"go/token"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// reservedNames are those that the generated files use themselves.
func reservedNames() []string {
	return []string{"Contract", "ErrorCode", "Base64", "Timestamp", "Record", clientMessage, serverMessage}
}

// nameTypes returns the name of each type that has a definition. Types of the same name are all called
// after their packages as well, type arguments included, so that the names do not depend on the order.
func nameTypes[V any](types map[reflect.Type]V) (map[reflect.Type]string, error) {
	short := map[string][]reflect.Type{}
	for t := range types {
		name := typeName(t.Name(), nil)
		short[name] = append(short[name], t)
	}
	names, users := map[reflect.Type]string{}, map[string][]reflect.Type{}
	for name, same := range short {
		for _, t := range same {
			names[t] = name
			if len(same) > 1 || slices.Contains(reservedNames(), name) {
				names[t] = packageName(t.PkgPath()) + typeName(t.Name(), packageName)
			}
			users[names[t]] = append(users[names[t]], t)
		}
	}
	var errs []error
	for name, same := range users {
		if len(same) > 1 || slices.Contains(reservedNames(), name) {
			errs = append(errs, collision(name, same))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return names, errors.Join(errs...)
}

// collision reports types that would have the same name.
func collision(name string, types []reflect.Type) error {
	var list []string
	for _, t := range types {
		list = append(list, t.PkgPath()+"."+t.Name())
	}
	slices.Sort(list)
	return fmt.Errorf("contract: the name %s is that of several types: %s; rename one", name, strings.Join(list, ", "))
}

// packageName returns a prefix for names of types of a package: ShopCart for example.com/shop-cart/v2.
func packageName(pkg string) string {
	base := path.Base(pkg)
	if version, ok := strings.CutPrefix(base, "v"); ok && identifier(version) == version && strings.Trim(version, "0123456789") == "" {
		base = path.Base(path.Dir(pkg))
	}
	var name strings.Builder
	for part := range strings.FieldsFuncSeq(base, func(r rune) bool { return r == '_' || identifier(string(r)) == "" }) {
		name.WriteString(capitalize(part))
	}
	return name.String()
}

// typeName returns the name of a type as an identifier: PageOfSaid for Page[example.com/chat.Said]. If
// prefix is not nil, it is called for the packages of type arguments.
func typeName(name string, prefix func(pkg string) string) string {
	generic, arguments, found := strings.Cut(name, "[")
	result := capitalize(identifier(generic))
	if !found {
		return result
	}
	var parts []string
	for _, argument := range splitArguments(strings.TrimSuffix(arguments, "]")) {
		parts = append(parts, argumentName(argument, prefix))
	}
	return result + "Of" + strings.Join(parts, "And")
}

// splitArguments splits type arguments at the commas that are not inside brackets or braces.
func splitArguments(list string) (arguments []string) {
	depth, start := 0, 0
	for i, c := range list {
		switch c {
		case '[', '{', '(':
			depth++
		case ']', '}', ')':
			depth--
		case ',':
			if depth == 0 {
				arguments = append(arguments, list[start:i])
				start = i + 1
			}
		}
	}
	return append(arguments, list[start:])
}

// argumentName returns the name of a type argument: SaidList for []example.com/chat.Said.
func argumentName(argument string, prefix func(pkg string) string) string {
	if elem, ok := strings.CutPrefix(argument, "[]"); ok {
		return argumentName(elem, prefix) + "List"
	}
	if elem, ok := strings.CutPrefix(argument, "*"); ok {
		return argumentName(elem, prefix) + "Pointer"
	}
	if rest, ok := strings.CutPrefix(argument, "map["); ok {
		if key, elem, ok := strings.Cut(rest, "]"); ok {
			return argumentName(elem, prefix) + "By" + argumentName(key, prefix)
		}
	}
	end := len(argument)
	if i := strings.IndexByte(argument, '['); i > 0 {
		end = i // the brackets of its own arguments have dots, too
	}
	dot := strings.LastIndexByte(argument[:end], '.')
	if prefix == nil || dot < 0 {
		return typeName(argument[dot+1:], prefix)
	}
	return prefix(argument[:dot]) + typeName(argument[dot+1:], prefix)
}

// identifier returns the letters and digits of a name.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) && r < utf8.RuneSelf {
			return r
		}
		return -1
	}, name)
}

func capitalize(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(first)) + name[size:]
}

// isIdentifier reports whether a name is one in TypeScript.
func isIdentifier(name string) bool { return token.IsIdentifier(name) }
