package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/cmd/penstock/internal/sample"
	"github.com/penstock-go/penstock/errors"
)

// A header is one of the handshake.
type header struct{ name, value string }

func (f *loadFlags) addHeader(text string) error {
	name, value, found := strings.Cut(text, ":")
	if !found || name == "" {
		return errors.New("must be a name, a colon and a value")
	}
	f.headers = append(f.headers, header{name, strings.TrimSpace(value)})
	return nil
}

func (f *loadFlags) addSetup(text string) error {
	typ, payload, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		payload = "{}"
	}
	if !isJSON(payload) {
		return fmt.Errorf("must be a type, a space and JSON, which this is not: %s", payload)
	}
	f.Setup = append(f.Setup, load.Message{Type: typ, Payload: payload})
	return nil
}

func isJSON(payload string) bool { return json.Valid([]byte(load.Example(payload))) }

func (f *loadFlags) check() error {
	u, err := url.Parse(f.URL)
	switch {
	case err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "":
		return fmt.Errorf("%q is not a URL that begins with ws:// or wss://", f.URL)
	case f.call != "" && f.send != "":
		return errors.New("-call and -send exclude each other; give the one that the type is, an RPC or an event")
	case f.call == "" && f.send == "" && f.Topic == "":
		return errors.New("nothing to do; give the type of a message, such as -call WHO, or a topic, such as -subscribe news")
	case f.contract != "" && f.payloadSet:
		return errors.New("-contract makes the payload, so it excludes -payload")
	case f.token != "" && f.tokenFile != "":
		return errors.New("-token and -token-file exclude each other")
	case f.Connections < 1:
		return fmt.Errorf("-connections is %d; it must be at least 1", f.Connections)
	case !(f.Rate > 0) || !(f.Ramp > 0):
		return errors.New("-rate and -ramp must be more than 0")
	case f.Duration <= 0 || f.Timeout <= 0 || f.Warmup < 0:
		return errors.New("-duration and -timeout must be more than 0, and -warmup must not be negative")
	}
	if f.plot != "" {
		_, err = chart.KindOf(f.plot)
	}
	return err
}

// read reads the files and the contract, and completes the options.
func (f *loadFlags) read(stdin io.Reader) error {
	f.Type, f.Event = f.call+f.send, f.send != ""
	tokens := []string{f.token}
	if f.tokenFile != "" {
		var err error
		if tokens, err = readTokens(f.tokenFile); err != nil {
			return err
		}
	}
	f.Header = func(conn int) http.Header { return f.headerOf(conn, tokens[conn%len(tokens)]) }
	if f.Type == "" {
		return nil
	}
	if f.contract != "" {
		return f.readContract(tokens[0])
	}
	return f.readPayload(stdin)
}

func (f *loadFlags) readPayload(stdin io.Reader) error {
	text := []byte(f.payload)
	from, isFile := strings.CutPrefix(f.payload, "@")
	var err error
	switch {
	case isFile && from == "-":
		text, err = io.ReadAll(stdin)
	case isFile:
		text, err = os.ReadFile(from)
	}
	if err != nil {
		return err
	}
	f.Payload = string(bytes.TrimSpace(text))
	if !isJSON(f.Payload) {
		return usageError{fmt.Errorf("-payload is not JSON: %s", firstLines(f.Payload))}
	}
	return nil
}

// readTokens reads a file with one token per line.
func readTokens(path string) (tokens []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s: the file contains no token; write one per line", path)
	}
	return tokens, nil
}

func (f *loadFlags) headerOf(conn int, token string) http.Header {
	number := strings.NewReplacer("{{conn}}", strconv.Itoa(conn))
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+number.Replace(token))
	}
	for _, one := range f.headers {
		h.Add(one.name, number.Replace(one.value))
	}
	return h
}

// readContract makes the payload from the schema of the type.
func (f *loadFlags) readContract(token string) error {
	text, err := f.contractText(token)
	if err != nil {
		return err
	}
	payload, kind, err := sample.Payload(text, f.Type)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", f.contract, err)
	case f.Event && kind != sample.Event:
		return usageError{fmt.Errorf("%s is a %s, which has a reply; give -call %[1]s", f.Type, kind)}
	case !f.Event && kind == sample.Event:
		return usageError{fmt.Errorf("%s is an event, which has no reply; give -send %[1]s", f.Type)}
	}
	f.Payload = payload
	return nil
}

// contractText reads the contract as the first connection, whose token is given.
func (f *loadFlags) contractText(token string) ([]byte, error) {
	if !strings.Contains(f.contract, "://") {
		return os.ReadFile(f.contract)
	}
	address, err := parseAddress(f.contract)
	if err != nil {
		return nil, usageError{err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.Timeout)
	defer cancel()
	return fetch(ctx, address, strings.ReplaceAll(token, "{{conn}}", "0"))
}
