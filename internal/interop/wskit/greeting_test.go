package wskit_test

import "testing"

func TestWebSocket_GreetsServer(t *testing.T) { runNode(t, "greeting.test.mjs", identities) }
