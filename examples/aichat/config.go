package main

import (
	"flag"
	"fmt"
	"io"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
)

// A config holds the parsed and validated flags.
type config struct {
	addr      string
	model     model
	scripts   bool            // the AI SDK may send scripts, which replace the model
	perMinute int64           // tokens of a user
	perDay    int64           // tokens of a user
	redis     *goredis.Client // nil: a single node with everything in memory
}

// fakeModelName is the model that needs no network.
const fakeModelName = "fake"

// parseFlags returns flag.ErrHelp after it has written the usage.
func parseFlags(args []string, getenv func(string) string, usage io.Writer) (config, error) {
	var cfg config
	fs := flag.NewFlagSet("aichat", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.addr, "addr", "localhost:8080", "`host:port` to listen on")
	name := fs.String("model", fakeModelName, "`model` that answers: fake needs no network; any other is a model of the API at OPENAI_BASE_URL, by default https://api.openai.com/v1, with the key OPENAI_API_KEY")
	fs.Int64Var(&cfg.perMinute, "tokens-per-minute", 2000, "`tokens` that a user may use per minute, and at once")
	fs.Int64Var(&cfg.perDay, "tokens-per-day", 20_000, "`tokens` that a user may use per day")
	redisURL := fs.String("redis", "", "`URL` of the Redis server that the nodes share, such as redis://localhost:6379; if empty, this node runs alone")
	err := fs.Parse(args)
	switch {
	case err == flag.ErrHelp: //nolint:errorlint // Parse returns it unwrapped
		fs.SetOutput(usage)
		fs.Usage()
		return cfg, err
	case err != nil:
		return cfg, err
	case fs.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case cfg.perMinute < minTokens || cfg.perDay < minTokens:
		return cfg, fmt.Errorf("-tokens-per-minute is %d and -tokens-per-day is %d; they must be at least %d", cfg.perMinute, cfg.perDay, minTokens)
	}
	if err := cfg.setModel(*name, getenv); err != nil || *redisURL == "" {
		return cfg, err
	}
	return cfg, cfg.connect(*redisURL)
}

func (cfg *config) setModel(name string, getenv func(string) string) error {
	if name == fakeModelName {
		cfg.model, cfg.scripts = fakeModel, true
		return nil
	}
	p := &provider{name: name, url: "https://api.openai.com/v1", key: getenv("OPENAI_API_KEY")}
	if url := getenv("OPENAI_BASE_URL"); url != "" {
		p.url = url
	}
	if p.key == "" {
		return errors.New("-model needs a key in the environment variable OPENAI_API_KEY, unless it is " + fakeModelName)
	}
	cfg.model = p.answer
	return nil
}

// connect does not wait for Redis.
func (cfg *config) connect(url string) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("-redis is %q; it must be a URL such as redis://user:password@localhost:6379/0", url)
	}
	cfg.redis = goredis.NewClient(opts)
	return nil
}
