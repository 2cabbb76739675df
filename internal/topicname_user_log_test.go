package internal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/topicname"
)

func TestCheck_RejectsNamesOfUserLogs(t *testing.T) {
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(topicname.Check(topicname.UserLog("t", "u"))))
	assert.NoError(t, topicname.Check("room/go"))
}

func TestUserLog_HasNameOfItsOwn(t *testing.T) {
	users := [][2]string{{"", "a b"}, {"a", "b"}, {"a ", "b"}, {"", "a  b"}, {"1", "a"}}
	names := map[string]bool{}
	for _, user := range users {
		name := topicname.UserLog(user[0], user[1])
		assert.True(t, topicname.IsUserLog(name))
		assert.Empty(t, topicname.ForClient(name))
		names[name] = true
	}
	assert.Len(t, names, len(users))
	assert.False(t, topicname.IsUserLog("user 1 a b"))
	assert.Equal(t, "room/go", topicname.ForClient("room/go"))
}
