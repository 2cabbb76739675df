package jsonplan_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/jsonplan"
)

func TestParse_ReadsNameAndOptions(t *testing.T) {
	for tag, want := range map[reflect.StructTag]jsonplan.TaggedMember{
		``:                          {Name: "Field"},
		`xml:"x"`:                   {Name: "Field"},
		`json:""`:                   {Name: "Field"},
		`json:"field"`:              {Name: "field", Tagged: true},
		`json:"-,"`:                 {Name: "-", Tagged: true, Options: []string{""}},
		`json:",omitzero"`:          {Name: "Field", OmitZero: true, Options: []string{"omitzero"}},
		`json:"f,omitempty,string"`: {Name: "f", Tagged: true, OmitEmpty: true, Quoted: true, Options: []string{"omitempty", "string"}},
		`json:",embed"`:             {Name: "Field", Embedded: true, Options: []string{"embed"}},
		`json:",case:strict,other"`: {Name: "Field", Options: []string{"case:strict", "other"}},
	} {
		m, ok := jsonplan.ParseTag("Field", true, false, tag)
		assert.True(t, ok, tag)
		assert.Equal(t, want, m, tag)
	}
}

func TestParse_FieldIsPartOfTheJSON(t *testing.T) {
	for _, c := range []struct {
		exported, anonymous bool
		tag                 reflect.StructTag
		ok, embedded        bool
	}{
		{exported: true, ok: true},
		{exported: true, anonymous: true, ok: true, embedded: true},
		{exported: true, anonymous: true, tag: `json:"f"`, ok: true},
		{exported: true, tag: `json:"-"`},
		{anonymous: true, ok: true, embedded: true},
		{anonymous: true, tag: `json:"-"`},
		{},
		{tag: `json:"f"`},
	} {
		m, ok := jsonplan.ParseTag("F", c.exported, c.anonymous, c.tag)
		assert.Equal(t, c.ok, ok, "%+v", c)
		assert.Equal(t, c.embedded, m.Embedded, "%+v", c)
	}
}

func TestDominant_LeastDeepThenTaggedFieldCounts(t *testing.T) {
	all := []jsonplan.TaggedMember{
		{Name: "depth", Index: []int{0, 0}, Tagged: true},
		{Name: "tag", Index: []int{0, 1}},
		{Name: "equal", Index: []int{0, 2}},
		{Name: "equal tags", Index: []int{0, 3}, Tagged: true},
		{Name: "hidden", Index: []int{0, 4, 0}},
		{Name: "tag", Index: []int{1, 0}, Tagged: true},
		{Name: "equal", Index: []int{1, 1}},
		{Name: "equal tags", Index: []int{1, 2}, Tagged: true},
		{Name: "hidden", Index: []int{1, 3}},
		{Name: "hidden", Index: []int{1, 4}},
		{Name: "depth", Index: []int{2}},
		{Name: "alone", Index: []int{3}},
	}
	assert.Equal(t, []jsonplan.TaggedMember{
		{Name: "alone", Index: []int{3}},
		{Name: "depth", Index: []int{2}},
		{Name: "tag", Index: []int{1, 0}, Tagged: true},
	}, jsonplan.DominantMembers(all, func(m jsonplan.TaggedMember) jsonplan.TaggedMember { return m }))
}
