package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var expression = regexp.MustCompile(`\$\{([a-zA-Z]\w*(?:\.\w+)*)(?:([-+*/])(\d+))?\}`)

// expand replaces ${name}, ${name.member} and ${name+1} in a line by what was bound to the name.
func expand(line string, bound map[string]any) (string, error) {
	var failed error
	line = expression.ReplaceAllStringFunc(line, func(text string) string {
		match := expression.FindStringSubmatch(text)
		value := lookup(bound, match[1])
		if value == nil {
			failed = fmt.Errorf("%s has no value", text)
			return text
		}
		if match[2] == "" {
			return show(value)
		}
		a, ok := value.(int64)
		b, _ := strconv.ParseInt(match[3], 10, 64)
		if !ok {
			failed = fmt.Errorf("%s is %v, which is not an integer", text, value)
		}
		return strconv.FormatInt(map[string]func() int64{
			"+": func() int64 { return a + b }, "-": func() int64 { return a - b },
			"*": func() int64 { return a * b }, "/": func() int64 { return a / b },
		}[match[2]](), 10)
	})
	return line, failed
}

// lookup returns a member of what was bound to a name, or nil.
func lookup(bound map[string]any, path string) any {
	var value any = bound
	for part := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// show returns a value as JSON, and a string without quotes.
func show(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// mismatch returns the first difference between a value and a pattern, or "". An object matches if the members of the pattern match;
// an absent member counts as "", 0, false or an empty array. The object {"$min":1,"$max":9} matches numbers, {"$absent":true} what is
// not there, {"$not":"text"} strings without the text, and {"$some":true} everything but zero values.
func mismatch(path string, value, pattern any) string {
	switch p := pattern.(type) {
	case map[string]any:
		if special, ok := mismatchSpecial(path, value, p); ok {
			return special
		}
		object, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(p)) {
			if found := mismatch(join(path, key), object[key], p[key]); found != "" {
				return found
			}
		}
		return ""
	case []any:
		array, _ := value.([]any)
		if len(array) != len(p) {
			return fmt.Sprintf("%s has %d items, must have %d", path, len(array), len(p))
		}
		for i, item := range p {
			if found := mismatch(join(path, strconv.Itoa(i)), array[i], item); found != "" {
				return found
			}
		}
		return ""
	}
	if value == nil {
		value = reflect.Zero(reflect.TypeOf(pattern)).Interface()
	}
	if value != pattern {
		return fmt.Sprintf("%s is %s, must be %s", path, quote(value), quote(pattern))
	}
	return ""
}

// mismatchSpecial is mismatch for a pattern whose members begin with $. ok is false for other ones.
func mismatchSpecial(path string, value any, p map[string]any) (problem string, ok bool) {
	number, _ := value.(int64)
	text, _ := value.(string)
	for key, bound := range p {
		wrong := false
		switch key {
		case "$min":
			wrong = number < bound.(int64)
		case "$max":
			wrong = number > bound.(int64)
		case "$absent":
			wrong = value != nil
		case "$not":
			wrong = strings.Contains(text, bound.(string))
		case "$some":
			wrong = value == nil || reflect.ValueOf(value).IsZero()
		default:
			return "", false
		}
		if wrong {
			return fmt.Sprintf("%s is %s, must be %s", path, quote(value), show(p)), true
		}
	}
	return "", len(p) > 0
}

func quote(value any) string {
	if value == nil {
		return "absent"
	}
	text, _ := json.Marshal(value)
	return string(text)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// generic returns a value as what JSON decodes to.
func generic(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		panic(err)
	}
	return plain(v)
}
