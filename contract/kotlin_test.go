package contract_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router"
)

// Double is also a type of Kotlin, as is the name with an underscore of nothing.
type Double struct {
	X int `json:"x"`
}

// Mood is an enumeration whose values are no names.
type Mood string

func (Mood) Enum() []string { return []string{"so-so", "so so", "", "5 stars", "$"} }

// Only is an interface with one variant.
type Only interface{ Area() float64 }

func TestKotlin_Types(t *testing.T) {
	variants := map[reflect.Type][]reflect.Type{reflect.TypeFor[Only](): {reflect.TypeFor[Circle]()}}
	for name, tt := range map[string]struct {
		message any
		want    []string
	}{
		"keyword": {struct {
			A int `json:"class"`
		}{}, []string{"    @SerialName(\"class\")\n    public val class_: Long,\n"}},
		"same getter": {struct {
			A int `json:"text"`
			B int `json:"Text"`
		}{}, []string{"    public val Text: Long,\n    @SerialName(\"text\")\n    public val text_: Long,\n"}},
		"no letter": {struct {
			A int `json:"1"`
			B int `json:"-$"`
		}{}, []string{"    @SerialName(\"-\\$\")\n    public val n: Long,\n    @SerialName(\"1\")\n    public val n1: Long,\n"}},
		"name of Kotlin": {struct{ D Double }{}, []string{"public data class Double_(", "public val D: Double_,"}},
		"one variant":    {struct{ O Only }{}, []string{"public typealias Only = Circle?"}},
		"enumeration": {struct{ M Mood }{}, []string{
			`SO_SO: Mood = Mood("so-so")`, `SO_SO_: Mood = Mood("so so")`, `n: Mood = Mood("")`, `n5_STARS: Mood = Mood("5 stars")`, `n_: Mood = Mood("\$")`,
		}},
	} {
		c, err := contract.New(describe(reflect.TypeOf(tt.message), false), &contract.Options{Variants: variants})
		require.NoError(t, err, name)
		for _, want := range tt.want {
			assert.Contains(t, string(c.Kotlin("")), want, name)
		}
	}
}

func TestKotlin_TopicsWithNamesOfTheFile(t *testing.T) {
	r := router.New(nil)
	for _, pattern := range []string{"{client}/{penstock}/{in}", "a/{options}", `"/{x}/$y`} {
		router.Topic(r, pattern, nil)
	}
	c, err := contract.New(r.Describe(), nil)
	require.NoError(t, err)
	for _, want := range []string{
		"fun topic(client_: String, penstock_: String, in_: String, options:", `client.topic("${client_}/${penstock_}/${in_}", options)`,
		"fun aTopic(options_: String, options:", `client.topic("\"/${x}/\$y", options)`,
	} {
		assert.Contains(t, string(c.Kotlin("")), want)
	}
}

func TestKotlin_HasThePackage(t *testing.T) {
	c := kitchenContract(t)
	assert.Contains(t, string(c.Kotlin("com.example")), "\npackage com.example\n")
	assert.NotContains(t, string(c.Kotlin("")), "\npackage ")
}
