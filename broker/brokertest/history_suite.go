package brokertest

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A HistoryCluster connects the nodes of a [HistoryCase].
type HistoryCluster struct {
	// Connect adds a node. Nodes share their histories. They may share one broker, or have one
	// each, as in separate processes.
	Connect func(broker.Callbacks, broker.HistoryCallbacks) broker.HistoryNode

	// Faults are injected one after the other. They must not make the store lose publications. A
	// broker without a network has none.
	Faults []Fault

	// Timeout is how long a case waits for an expected event before it fails.
	Timeout time.Duration

	// QuietPeriod is how long a case waits for unexpected publications.
	QuietPeriod time.Duration

	// Age is the age of publications that expire while a case waits: it waits twice as long. Keys
	// must be remembered for longer than that.
	Age time.Duration

	// IdempotencyTime is how long the broker remembers idempotency keys. If it is 0, no case waits
	// until a key expires.
	IdempotencyTime time.Duration

	// MetadataAge is how long the broker keeps the position of a topic that is not used. If it is 0,
	// no case waits that long.
	MetadataAge time.Duration
}

// A HistoryCase is one rule of the contract of [broker.HistoryNode].
type HistoryCase struct {
	Name  string
	Rule  string
	Check func(HistoryCluster) error // returns how a broker broke the rule
}

// Run fails the test if the broker breaks the rule. Each run uses topics of its own, so cases may
// share a server and run in parallel.
func (c HistoryCase) Run(t *testing.T, cluster HistoryCluster) {
	t.Helper()
	if err := c.Check(cluster); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// HistoryCases returns the rules that [broker.HistoryNode] adds to those of [broker.Node],
// which [Cases] returns.
func HistoryCases() []HistoryCase {
	return []HistoryCase{
		{"first position", "The first position of a topic, with offset 0, exists before its first publication, on all nodes.", firstPositionExists},
		{"first publication", "The first publication of a topic has offset 1 in the epoch in which the topic was read before.", firstPublicationContinues},
		{"forgotten topic", "The positions of a topic that the store has forgotten are not used again. A topic without publications loses nothing meanwhile.", forgottenPositionsAreNotReused},
		{"gapless offsets", "The publication after offset n has offset n+1, in the same epoch.", offsetsAreGapless},
		{"publication reaches followers", "A publication reaches all nodes that follow its topic, also its own, whole and once.", publicationReachesFollowers},
		{"history packets", "A packet may be empty, and as large as a message; keys may contain any character.", historyPackets},
		{"histories are separate", "Topics have separate histories, whatever their names contain.", historiesAreSeparate},
		{"one order", "All followers and readers agree on the order of concurrent publishers; calls of a caller that waits are stored in order.", nodesAgreeOnOrder},
		{"duplicate", "An Append with a known idempotency key stores and publishes nothing, and returns the position of the first one.", duplicatesAreNotStored},
		{"concurrent duplicates", "Concurrent Appends with one idempotency key store one publication.", concurrentDuplicates},
		{"key outlives publication", "An idempotency key is remembered when its publication is no longer stored.", keyOutlivesPublication},
		{"key expires", "An idempotency key is remembered for IdempotencyTime, not longer.", keyExpires},
		{"lower fence", "An Append with a lower fence than a stored publication stores and publishes nothing, and returns an ABORTED error.", lowerFenceIsRefused},
		{"higher fence", "An Append whose fence is at least that of the topic is stored.", higherFenceIsAccepted},
		{"required epoch", "An Append that requires the epoch of the topic is stored. One that requires another epoch stores and publishes nothing, and returns an ABORTED error.", requiredEpoch},
		{"duplicate with a fence", "A duplicate returns the first position whatever its fence is and even if the topic is closed. It neither raises the fence nor closes the topic.", duplicatesPassFences},
		{"concurrent fences", "After the first publication with a higher fence, none with a lower one is stored, however many are in flight.", concurrentFences},
		{"closed topic", "After an Append with Last, the topic stores and publishes nothing more, and Append returns a FAILED_PRECONDITION error.", closedTopicRefuses},
		{"concurrent closes", "Of concurrent Appends with Last, one is stored, and nothing after it.", concurrentCloses},
		{"closed is read", "Read and ReadAll return on all nodes whether the topic is closed, whatever publications a page contains.", closedIsRead},
		{"fence outlives publications", "A topic whose publications were all removed or have expired keeps its fence, or is still closed.", fenceOutlivesPublications},
		{"forgotten fence", "A topic that the store has forgotten has no fence and is not closed.", forgottenFence},
		{"retention by messages", "A history keeps the newest publications, Retention.Messages of them and perhaps some more.", retentionByMessages},
		{"retention by bytes", "A history keeps at most Retention.Bytes of packets, the newest ones.", retentionByBytes},
		{"retention by age", "Publications older than Retention.Age are not returned.", retentionByAge},
		{"metadata outlives publications", "A topic whose publications have all expired keeps its epoch and its last offset.", metadataOutlivesPublications},
		{"metadata is kept by reads", "A topic whose position is read keeps its epoch and its last offset, however long nothing is published.", metadataIsKeptByReads},
		{"retention changes", "Changing the retention keeps positions, idempotency keys and state.", positionsSurviveRetentionChange},
		{"reads delete nothing", "Read and ReadState delete nothing, whatever the retention says.", readsDeleteNothing},
		{"pages", "Read returns the publications that a Query selects, adjacent and in ascending order, and the current position.", pagesMatchQueries},
		{"batch pages", "ReadAll returns for each topic, in their order, what Read returns for it.", batchesEqualReads},
		{"batch of a full history", "ReadAll returns what Read returns, also behind many publications that the history has dropped.", batchOfFullHistoryEqualsRead},
		{"batch bounds", "The publications of all pages of ReadAll are within its bounds; a page is omitted if it does not fit into what the others leave, and never in part.", batchesAreBounded},
		{"batch in faults", "Whatever happens, ReadAll returns the position of each topic, which is not older than the last publication, or an error.", batchesInFaults},
		{"current position", "The position that Read returns is not older than what any node has received or stored.", positionIsCurrent},
		{"state", "ReadState returns the latest publication of every key, without removed keys, also when the history no longer contains it.", stateIsLatest},
		{"state expires", "ReadState returns no publication older than Retention.Age.", stateExpires},
		{"state of one moment", "ReadState returns the state at its position.", stateIsOfOneMoment},
		{"state in parts", "The parts of a state contain every key that does not change meanwhile, as of their positions and about as long as StateQuery.MaxBytes says, whatever nodes read them.", statePartsAreComplete},
		{"state parts end", "The parts of a state end, however fast its keys change.", statePartsEnd},
		{"unfollow", "After Unfollow, a node receives no more publications of the topic.", unfollowEndsDelivery},
		{"follow again", "Following is called once for each Follow; a publication is delivered once.", followAgain},
		{"following means delivered", "Everything stored after Following is delivered, without a gap.", followingMeansDelivered},
		{"value round trip", "LoadValue returns what StoreValue has stored, whatever bytes the data and the key contain.", valuesRoundTrip},
		{"absent value", "A key that has no value has the zero Value.", absentValueIsZero},
		{"value of another version", "If the value has another version, StoreValue changes nothing and returns an ABORTED error.", wrongVersionChangesNothing},
		{"value without a version", "StoreValue with version 0 creates a value, and replaces and deletes none.", versionZeroCreates},
		{"versions", "A key never has a version again, also after its value was deleted or has expired.", versionsAreNotRepeated},
		{"concurrent writers", "Of concurrent calls of StoreValue with one version, exactly one succeeds.", concurrentWriters},
		{"value expires", "A value expires after the lifetime that was stored last.", valuesExpire},
		{"value is deleted", "A lifetime of 0 or less deletes the value and returns version 0.", valuesAreDeleted},
		{"value is patched", "PatchValue changes the part of the data that the patch describes, the version and the lifetime; the other data remains.", valuesArePatched},
		{"wrong patch", "A patch of another version, or for longer data, changes nothing.", wrongPatchChangesNothing},
		{"values are shared", "When StoreValue has returned, all nodes load the new value.", valuesAreShared},
		{"values are copied", "The data that was passed to StoreValue or returned by LoadValue belongs to the caller.", valuesAreCopied},
		{"done context", "If the context is done before the call, nothing is done and its error is returned.", doneContextDoesNothing},
		{"closed history node", "After Close, methods do nothing and return an UNAVAILABLE error; Close may be called again.", closedHistoryNode},
		{"nothing is published after close", "After Close, no function of the HistoryHandler is called.", nothingIsPublishedAfterClose},
		{"outcome is true", "Whatever happens, a publication with a position is stored there, one with an error other than OutcomeUnknown is not stored, a repeated one with a key is stored once, and what a follower misses shows as a gap or was stored before Following.", outcomeIsTrue},
		{"value outcome is true", "Whatever happens, a value with a version is stored, one with an error other than OutcomeUnknown is not, and ABORTED means that another value was stored.", valueOutcomeIsTrue},
		{"fenced outcome is true", "Whatever happens, a producer with a higher fence replaces another one: what they know to be stored is stored once, in the order of their fences, and a repeated Append with Last and a key closes the topic once.", fencedOutcomeIsTrue},
	}
}
