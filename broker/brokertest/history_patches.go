package brokertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// patch changes a part of a value. The error keeps its code.
func (n *historyNode) patch(key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	newVersion, err := n.PatchValue(ctx, key, p, version, lifetime)
	clear(p.Data) // it belongs to the caller
	if err != nil {
		return newVersion, fmt.Errorf("patching the value of %.40q: %w", key, err)
	}
	return newVersion, nil
}

func valuesArePatched(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key, long := c.topic(), strings.Repeat("0123456789", 5000)
	texts := []string{
		"", "a", "ab", "b", "b", "\x00\xff\r\n", "\x00\xfe\r\n", "one two three", "one 2 three", "zero one 2 three", "one 2 three four", "one", "",
		long, "x" + long, long + "x", long[:20_000] + "x" + long[20_000:], long,
	}
	version, err := nodes[0].create(key, texts[0])
	if err != nil {
		return err
	}
	for i, text := range texts[1:] {
		before := version
		if version, err = nodes[i%2].patch(key, broker.NewPatch([]byte(texts[i]), []byte(text)), before, time.Hour); err != nil {
			return err
		}
		if version == 0 || version == before {
			return fmt.Errorf("a patch of version %d returned version %d", before, version)
		}
		if err := nodes[(i+1)%2].hasValue(key, text, version); err != nil {
			return err
		}
	}
	if _, err = nodes[0].patch(key, broker.Patch{}, version, 0); err != nil {
		return err
	}
	return nodes[1].hasNoValue(key)
}

func wrongPatchChangesNothing(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(1)
	defer closeAll()
	n, key, absent := nodes[0], c.topic(), c.topic()
	version, err := n.create(key, "data")
	if err != nil {
		return err
	}
	for _, wrong := range []struct {
		key     string
		patch   broker.Patch
		version uint64
		code    errors.Code
	}{
		{key, broker.Patch{Offset: 1, Remove: 1, Data: []byte("x")}, version + 1, errors.Aborted},
		{key, broker.Patch{}, 0, errors.Aborted},
		{absent, broker.Patch{Data: []byte("x")}, version, errors.Aborted},
		{key, broker.Patch{Offset: 5}, version, errors.InvalidArgument},
		{key, broker.Patch{Offset: 3, Remove: 2, Data: []byte("x")}, version, errors.InvalidArgument},
	} {
		newVersion, err := n.patch(wrong.key, wrong.patch, wrong.version, time.Hour)
		if errors.CodeOf(err) != wrong.code || newVersion != 0 {
			return fmt.Errorf("the patch %+v of version %d returned %d and the code %q, want 0 and %s", wrong.patch, wrong.version, newVersion, errors.CodeOf(err), wrong.code)
		}
	}
	return errors.Join(n.hasValue(key, "data", version), n.hasNoValue(absent))
}
