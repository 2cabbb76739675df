package run_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// progress is an item of another kind of run.
type progress struct {
	Percent int `json:"percent"`
}

func (progress) MessageType() string { return "progress" }

// TestNew_DescribesItsMessages in the contract of the router, by names without packages and brackets.
func TestNew_DescribesItsMessages(t *testing.T) {
	r := router.New(nil)
	run.New[token](r, "answer/{chat}", nil)
	run.New[progress](r, "job/{id}", nil)
	c, err := contract.New(r.Describe(), nil)
	require.NoError(t, err)
	text := string(c.TypeScript())
	for _, want := range []string{
		`    "token.attach": { request: AttachOfToken; item: PartOfToken; reply: Ended };`,
		`    "progress.attach": { request: AttachOfProgress; item: PartOfProgress; reply: Ended };`,
		`    "token.stop": { request: StopOfToken; reply: Ended; progress: never };`,
		`    "run.changed": Changed;`,
		"    [topic: `answer/${string}`]: { messages: \"run.changed\" };",
		`export interface AttachOfToken {
  /** the number of the first item */
  from?: number;
  /** the latest one of the topic without it */
  run?: string;
  topic: string;
}`,
		`export interface PartOfToken {
  /** how many items are merged; 1 without it */
  count?: number;
  item?: Token;
  /** the number of the item, or of the first one that is merged */
  n: number;
  /** in the first part, which has no item */
  run?: string;
}`,
		`export interface StopOfToken {
  run: string;
  topic: string;
}`,
		`export interface Ended {
  /** who has stopped it */
  by?: string;
  /** why it is not complete */
  error?: Failure;
  /** how many the run has */
  items: number;
  run: string;
  state: string;
}`,
	} {
		assert.Contains(t, text, want)
	}
}
