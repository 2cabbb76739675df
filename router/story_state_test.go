package router_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/router"
)

// A Delisted removes the quote of a symbol.
type Delisted struct {
	Symbol string `json:"symbol"`
}

func (Delisted) MessageType() string { return "DELISTED" }

func (d Delisted) ConflationKey() string { return d.Symbol }

// A storyState is what a client knows of the state of a topic.
type storyState struct {
	quotes   map[string]string // by symbol
	messages int               // that the state and later publications had
}

// receive applies a publication, and returns how "gets" shows it: "-SYMBOL" is a removal.
func (s *storyState) receive(typ, symbol, text string) string {
	if s.quotes == nil {
		s.quotes = map[string]string{}
	}
	switch typ {
	case "QUOTE":
		s.quotes[symbol] = text
		s.messages++
	case "DELISTED":
		delete(s.quotes, symbol)
		s.messages++
		return "-" + symbol
	}
	return text
}

// set: NODE TOPIC VALUE... publishes quotes: "SYMBOL=N", "SYMBOL=-" for a removal, "N" for the symbol k.
func (w *storyWorld) set(args []string) (string, error) {
	var err error
	for _, arg := range args[2:] {
		symbol, value, named := strings.Cut(arg, "=")
		if !named {
			symbol, value = "k", arg
		}
		if value == "-" {
			err = w.node(args[0]).Publish(args[1], Delisted{symbol}, router.Removed())
		} else {
			err = w.node(args[0]).Publish(args[1], Quote{Symbol: symbol, N: int(number(w, value, 0))})
		}
		if err != nil {
			return codeOf(err)
		}
	}
	return codeOf(err)
}

// fill: NODE TOPIC N [LENGTH] publishes quotes of the symbols 0 to N-1, with names of a length.
func (w *storyWorld) fill(args []string) (string, error) {
	length := 0
	if len(args) > 3 {
		length = int(number(w, args[3], 0))
	}
	for n := range int(number(w, args[2], 0)) {
		symbol := fmt.Sprint(n)
		symbol += strings.Repeat("x", max(0, length-len(symbol)))
		if err := w.node(args[0]).Publish(args[1], Quote{Symbol: symbol, N: n}); err != nil {
			return codeOf(err)
		}
	}
	return "", nil
}

// quotes: NAME [SYMBOL...] returns the quotes that a client has, of all symbols or of some.
func (w *storyWorld) quotes(args []string) (string, error) {
	c := w.client(args[0])
	w.readAll(c)
	c.inbox = nil
	symbols := args[1:]
	if len(symbols) == 0 {
		symbols = slices.Sorted(maps.Keys(c.state.quotes))
	}
	var all []string
	for _, symbol := range symbols {
		all = append(all, symbol+"="+cmp.Or(c.state.quotes[symbol], "-"))
	}
	return strings.Join(all, " "), nil
}

// keys: NAME returns how many quotes a client has. messages: NAME returns how many messages it has received since the answer.
func (w *storyWorld) keys(args []string) (string, error) {
	c := w.client(args[0])
	w.readAll(c)
	return fmt.Sprint(len(c.state.quotes)), nil
}

func (w *storyWorld) messages(args []string) (string, error) {
	c := w.client(args[0])
	w.readAll(c)
	return fmt.Sprint(c.state.messages), nil
}

// notices: NAME is "gets" without quotes.
func (w *storyWorld) notices(args []string) (string, error) {
	c := w.client(args[0])
	w.readAll(c)
	c.inbox = slices.DeleteFunc(c.inbox, func(text string) bool { return strings.Trim(text, "0123456789") == "" })
	return w.gets(args)
}
