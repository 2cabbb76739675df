package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// maxAnswerTokens bounds an answer of a provider.
const maxAnswerTokens = 2000

// A provider is an API with streamed chat completions, as OpenAI and many others have it.
type provider struct {
	name string // of the model
	url  string // without a path
	key  string
}

type completionRequest struct {
	Model         string              `json:"model"`
	Messages      []completionMessage `json:"messages"`
	MaxTokens     int                 `json:"max_completion_tokens"`
	Stream        bool                `json:"stream"`
	StreamOptions map[string]bool     `json:"stream_options"`
}

type completionMessage struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
}

// A completionChunk is an event of the stream. The last one has the usage, and no choices.
type completionChunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// answer is a model. When ctx ends, the request is canceled.
func (p *provider) answer(ctx context.Context, conversation []Message, emit func(text string) error) (used int64, err error) {
	resp, err := p.post(ctx, conversation)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return used, nil
		}
		var chunk completionChunk
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return used, unavailable(fmt.Errorf("the provider has sent %.200q: %w", data, err))
		}
		if chunk.Usage != nil {
			used = chunk.Usage.TotalTokens
		}
		for _, choice := range chunk.Choices {
			if choice.Delta.Content == "" {
				continue
			}
			if err := emit(choice.Delta.Content); err != nil {
				return 0, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return used, unavailable(err)
	}
	return used, unavailable(io.ErrUnexpectedEOF)
}

func (p *provider) post(ctx context.Context, conversation []Message) (*http.Response, error) {
	request := completionRequest{Model: p.name, MaxTokens: maxAnswerTokens, Stream: true, StreamOptions: map[string]bool{"include_usage": true}}
	for _, m := range conversation {
		request.Messages = append(request.Messages, completionMessage{m.Role, m.Text})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, unavailable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()                                 //nolint:errcheck // only read from
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // for the log
		return nil, unavailable(fmt.Errorf("the provider has answered %s: %s", resp.Status, text))
	}
	return resp, nil
}

// unavailable hides an error of the provider from users: it may contain what they must not see.
func unavailable(err error) error {
	return &errors.Error{Code: errors.Unavailable, Message: "the model is not available", Err: err}
}
