package internal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/wire"
)

func TestElements(t *testing.T) {
	for json, want := range map[string]int{
		``:                               0,
		`7`:                              0,
		`"[,]"`:                          0,
		`[]`:                             0,
		"[ \n ]":                         0,
		`{ }`:                            0,
		`[1]`:                            1,
		`[1,"a\",[",[],{}]`:              4,
		`{"a":1,"b,":[1,2],"c":{}}`:      5,
		`[[[[1]]]]`:                      4,
		`{"\\":"\\","\"":{"a":{"b":1}}}`: 4,
	} {
		assert.Equal(t, want, wire.Elements([]byte(json)), json)
	}
}
