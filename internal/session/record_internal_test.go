package session

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGrant_Add(t *testing.T) {
	for _, tt := range []struct{ first, second, want Grant }{
		{Grant{}, Grant{Epoch: "a", Offset: 5}, Grant{Epoch: "a", Offset: 5}},
		{Grant{Epoch: "a", Offset: 5}, Grant{Epoch: "a", Offset: 2}, Grant{Epoch: "a", Offset: 2}},
		{Grant{Epoch: "a", Offset: 5}, Grant{Epoch: "a", Offset: 9}, Grant{Epoch: "a", Offset: 5}},
		{Grant{Epoch: "a", Offset: 5}, Grant{Epoch: "b", Offset: 2}, Grant{Epoch: "a", Offset: 5}},
		{Grant{Epoch: "a", Offset: 5}, Grant{}, Grant{Epoch: "a", Offset: 5}},
		{Grant{Joined: true, Info: "Ann"}, Grant{State: true, Info: "Bob"}, Grant{Joined: true, Info: "Ann", State: true}},
		{Grant{Joined: true, Info: "Ann", Epoch: "a"}, Grant{Hidden: true}, Grant{Hidden: true, Epoch: "a"}},
		{Grant{Hidden: true}, Grant{}, Grant{}},
	} {
		assert.Equal(t, tt.want, tt.first.add(tt.second), fmt.Sprint(tt.first, tt.second))
	}
}
