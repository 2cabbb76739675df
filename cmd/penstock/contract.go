package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
)

const contractUsage = `usage: penstock %s [flags] URL

Reads the contract of a running server and prints %s. URL is that of
contract.Handler, such as http://localhost:8080/contract.

Flags:
`

// A contractCommand prints what package contract generates from the contract of a server.
type contractCommand struct {
	name     string
	prints   string
	generate func(*contract.Contract) []byte
	types    bool // has flags for other languages
}

func typesCommand() contractCommand {
	return contractCommand{"types", "TypeScript types, or those of another language", (*contract.Contract).TypeScript, true}
}

func asyncapiCommand() contractCommand {
	return contractCommand{"asyncapi", "an AsyncAPI 3 document", (*contract.Contract).AsyncAPI, false}
}

func schemaCommand() contractCommand {
	return contractCommand{"schema", "a JSON Schema", (*contract.Contract).JSONSchema, false}
}

var packageName = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

// run runs the command. Nothing is printed unless the whole contract has been read.
func (c contractCommand) run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	timeout := flags.Duration("timeout", 10*time.Second, "`time` after which to give up")
	token := flags.String("token", "", "bearer `token` to send to the server")
	generate := c.generate
	if c.types {
		flags.BoolFunc("python", "print a module for the package penstock-client of Python instead of TypeScript", func(string) error {
			generate = (*contract.Contract).Python
			return nil
		})
		flags.Func("kotlin", "print a file for the Kotlin client, in this `package`, instead of TypeScript", func(pkg string) error {
			if !packageName.MatchString(pkg) {
				return errors.New("a package of Kotlin is names with dots between them, such as com.example.chat")
			}
			generate = func(c *contract.Contract) []byte { return c.Kotlin(pkg) }
			return nil
		})
	}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, contractUsage, c.name, c.prints)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	if flags.NArg() != 1 {
		return usageError{fmt.Errorf("%s needs one URL, such as http://localhost:8080/contract; it has %d arguments", c.name, flags.NArg())}
	}
	address, err := parseAddress(flags.Arg(0))
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	text, err := fetch(ctx, address, *token)
	if err != nil {
		return err
	}
	read, err := contract.Parse(text)
	if err != nil {
		return fmt.Errorf("%s has answered with something else than a contract; give the URL of contract.Handler: %w", address, err)
	}
	_, err = stdout.Write(generate(read))
	return err
}

// parseAddress returns a URL, or an error that says what is wrong with it.
func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme == "ws" || u.Scheme == "wss":
		return nil, fmt.Errorf("%s is a WebSocket URL; give that of contract.Handler, which begins with http", text)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not a URL that begins with http:// or https://", text)
	default:
		return u, nil
	}
}

// maxContractBytes bounds what is read. Contracts are a few hundred kilobytes at most.
const maxContractBytes = 64 << 20

// fetch returns the body of a successful answer.
func fetch(ctx context.Context, address *url.URL, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err // names the URL
	}
	defer resp.Body.Close() //nolint:errcheck // the body has been read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxContractBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of %s is incomplete: it ends after %d bytes: %w", address, len(text), err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s has answered with status %s: %s", address, resp.Status, firstLines(string(text)))
	case len(text) > maxContractBytes:
		return nil, fmt.Errorf("the answer of %s is longer than %d bytes", address, maxContractBytes)
	}
	return text, nil
}

// firstLines returns the beginning of what a server says about an error.
func firstLines(text string) string {
	const maxBytes = 2000
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "…"
	}
	return strings.TrimSpace(text)
}
