package router

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTopicGrant_Add(t *testing.T) {
	for _, tt := range []struct{ first, second, want topicGrant }{
		{topicGrant{}, topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 2}, topicGrant{Epoch: "a", Offset: 2}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 9}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "b", Offset: 2}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Joined: true, Info: "Ann"}, topicGrant{State: true, Info: "Bob"}, topicGrant{Joined: true, Info: "Ann", State: true}},
	} {
		assert.Equal(t, tt.want, tt.first.add(tt.second), fmt.Sprint(tt.first, tt.second))
	}
}
