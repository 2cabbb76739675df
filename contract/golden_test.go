package contract_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/contracttest"
)

func TestContract_IsAsInTestdata(t *testing.T) {
	r := kitchenRouter()
	for _, name := range []string{"kitchen.ts", "kitchen.py", "kitchen.kt", "kitchen.asyncapi.json", "kitchen.schema.json"} {
		contracttest.Check(t, r, "testdata/"+name, kitchenOptions())
	}
}

func TestGuide_ShowsGeneratedTypes(t *testing.T) {
	c, err := contract.New(newChat().Describe(), nil)
	require.NoError(t, err)
	_, types, _ := strings.Cut(string(c.TypeScript()), "\n\n")
	types, _, _ = strings.Cut(types, "\n\n/** The codes")
	guide, err := os.ReadFile("../docs/guides/contract.md")
	require.NoError(t, err)
	assert.Contains(t, string(guide), "```ts\n"+types+"\n```")
}

func TestGuide_HasTheNamesInKotlin(t *testing.T) {
	c, err := contract.New(newChat().Describe(), nil)
	require.NoError(t, err)
	for _, name := range []string{
		"suspend fun joinRoom(payload: JoinRoom,", "fun joinRoomError(", "class NotFound(", "fun roomTopic(id: String,", "class SaidMessage(public val payload: Said,",
		"    public val room: String,\n", "    public val text: String,\n",
	} {
		assert.Contains(t, string(c.Kotlin("")), name)
	}
}
