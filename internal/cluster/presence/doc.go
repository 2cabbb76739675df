// Package presence replicates which members are present in which topics on which nodes. It is a
// state machine without goroutines, network and clock: the caller passes packets and the time to a
// [Node], and the node passes packets and events to its [Output].
//
//	Join, Leave ──► owner ──► change ──► Publish(topic)      ─┐
//	                  └─────► digest ──► Heartbeat           ─┤ network
//	                                                          ▼
//	Changed ◄── replica of each peer ◄── Receive, PeerHeartbeat ──► ask ──► Send(peer)
//
// # Model
//
// Only the node of a member changes its presence, so that nothing has to be merged. The owner
// numbers its changes: a version counts the changes of a node in all topics, within one
// incarnation, which is a random number of each start. Other nodes hold a replica of the topics
// that they track. For each peer a node knows:
//
//   - known: the owner's changes up to this version are applied in every tracked topic, or the
//     topic is marked as behind. It advances by digests alone.
//   - for a topic with members, or one that is behind: the members, the version to which they are
//     complete, and the version that is needed.
//
// Each change is published once, to the nodes that subscribe to the topic. It contains the version
// of the topic's previous change by the same owner. A receiver that is complete to that version
// applies it; otherwise the topic is behind.
//
// Every heartbeat contains a digest: the topics that have changed in the versions (base, version],
// with the version of their last change, the count and the checksum of their members. A node that
// knows the owner up to base or later thus sees for each of its topics whether it has missed
// something, whatever was lost, and without an assumption about the order of packets. A topic that
// is listed without members is emptied at once. In addition, each heartbeat lists some unchanged
// topics in turn, whose checksums are compared.
//
// A node that is behind asks the owner, after a random time of up to 200 ms, in which the causes
// are collected. By then packets that were overtaken have usually arrived, and nothing is asked.
// The owner answers the asker alone. Requests are repeated after 0.5, 1, 2, 2 … s, each with up to
// 200 ms more, until nothing is missing. What an ask contains depends on what is missing:
//
//   - known is before the digest of the heartbeat: a digest after known, and up to 64 tracked
//     topics with the versions held, so that their changes are part of the same answer.
//   - topics are behind: these topics with the versions held.
//   - a topic is tracked from now on: one broadcast query for all new topics, at the next
//     [Node.Tick] unless there was one in the last 200 ms. Nodes with members
//     answer it; the others list the topics in their next heartbeat, which serves all askers. With more
//     than 16 peers all nodes answer, because a heartbeat has a copy for each of them.
//
// The owner answers with the changes since a version from its log of 4,096 changes, or with the
// topic's members if the log is shorter or the members are fewer. It lists topics without members
// in digests, and remembers 4,096 of them. Its floor is the last change of the newest forgotten
// one. Digests begin at floor or later; a node that knows less treats what it holds as unknown
// until a checksum or a full state replaces it.
//
// # Failures
//
//   - A failed publish still counts as a version, and shows in the next heartbeat.
//   - After [Node.PeerFailed], the members of the peer leave. Its replica is kept for 60 s. When
//     its heartbeats return with the same incarnation, the members join again once the replica is
//     up to date, without a transfer if nothing has changed.
//   - After 60 s the peer is forgotten. If it returns, it is asked from version 0.
//   - After [Node.PeerLeft] the members leave, and heartbeats of the same incarnation are ignored
//     for 60 s: the leave message has overtaken them.
//   - Another incarnation of a peer replaces the former one.
//   - A node that was paused, or whose connection was interrupted, needs no call: what it has
//     missed shows in the first heartbeats. It delivers stale packets without harm, because they
//     have old versions.
//
// # Guarantees
//
// When the network delivers heartbeats and packets again, all nodes report the same members within
// 5 s. Until then, a node may report members that have left, and miss others. Joins and leaves
// that a node reports alternate for each member. A member that joins and leaves while a node is
// behind may not be reported at all.
//
// The caller must
//
//   - send the payload of [Node.Heartbeat] to all nodes once per second, and pass those of other
//     nodes to [Node.PeerHeartbeat],
//   - call [Node.Tick] about 20 times per second,
//   - call [Node.PeerFailed] when a peer was silent for 4 s, but only while the node's own
//     heartbeats return to it; after an interruption of them, 3 s after they return,
//   - call [Node.Track] when the subscription to the topic's packets is confirmed.
//
// Reports about lost packets and interruptions are not needed.
//
// # Cost
//
// For N nodes that track the same T topics:
//
//   - nothing has changed: no packets; 0.5 KB per node and second in heartbeats, or 8 KB ÷ peers if
//     there are more than 16.
//   - a change: one publish, and 20 to 40 bytes in the heartbeats of the next 15 s, or 240 s ÷ peers and
//     at least 3 s, unless they already list the topic. The list is bounded by 4 KiB; if more topics change, peers that
//     track any topic ask once per heartbeat, for a digest of the changes in between.
//   - an interruption of all nodes, with changes on all of them: N·(N-1) asks and as many answers,
//     each with the changes of one node. With 16 nodes and 100 changes on each these are 480
//     packets and 1 MB, with 100 nodes 19,800 packets and 43 MB.
//
// # Memory
//
// An owner holds its members, 4,096 changes with their data, and 4,096 names of topics without
// members. Per peer, a node holds 0.3 KB, and for each tracked topic in which the peer has members
// a map of them. A tracked topic without members on the peer needs no record, except while
// something is missing. Parts of one full state per peer are collected, up to 64 MiB. Topics that
// wait to be confirmed in a heartbeat are at most 4,096.
//
// # Packets
//
// An integer is an unsigned varint, a string its length as an integer and its bytes. Packets are
// at most ChunkBytes long, unless one entry is longer. Kinds that are unknown, and packets that
// are malformed, of another incarnation or of an unknown peer are ignored.
//
//	digest   1, incarnation (8 bytes, big-endian), flags (1 byte), version, upto, base, entries
//	         to the end of the packet: topic (string), version of its last change, count,
//	         checksum (8 bytes, big-endian; only if count > 0)
//	change   2, incarnation, topic, version, version of the previous change, entry
//	query    3, topics to the end of the packet
//	ask      4, incarnation of the node that is asked, known+1 or 0 if no digest is wanted, and to
//	         the end of the packet: topic, version held + 1 or 0 if none
//	state    5, incarnation, version, sections to the end of the packet
//
// A digest lists the topics whose last change is in (base, upto]; its entries hold for version.
// The payload of a heartbeat is a digest with upto = version. A long digest is sent in parts, each
// of which begins where the one before ends, and is complete when a part ends at version. Flag 1
// says that base is the owner's floor, and that the topics with an earlier last change are listed
// too, except for the forgotten ones. An entry is one of
//
//	join     1, id (string), data (string)
//	leave    2, id
//
// A section of a state is one of
//
//	changes  1, topic, version before, entries each followed by their version, 0, version after
//	members  2, topic, number of the part, entries (joins), 0, last (1 byte); if last is 1,
//	         also the count of all members and their checksum (8 bytes, big-endian)
//
// The parts of a topic's members are numbered from 0, sent in order, and installed together. The
// checksum of a set of members is the sum of their hashes, each FNV-1a of the id, its length and
// the data, with the finalizer of MurmurHash3. It finds defects, not attacks: nodes trust each
// other's statements about their own members.
package presence
