// Package runs has runs as logs with an owner: package run without the types of items, and without clients. The log
// of a run is a topic with a history, its record and its lease are values of the store. docs/decisions/0082 says
// why.
//
// # The owner of a run
//
// An [Owned] is in one of these phases:
//
//	claiming   the node has the lease, and the record is being stored
//	producing  the producer runs
//	canceled   the context of the producer is canceled, and it should return within a second
//	ending     the rest of the items is appended to the log, and then the end
//	closing    the log has the end: the budget is settled, and the record stored
//	ended      readers of this node may read the end, for a second at most
//	lost       another node has ended the run, or goes on with it; its producer should return within a second
//	left       this node does nothing for the run any more
//
// These events change something; all others have no effect. The last column has what is done then: "cancel" the context
// of the producer, "renew" the lease, "restore" the record, and tasks of a goroutine that exists as long as it has one.
// A test reads this table, and tries every event in every phase. "Refused" is an append whose error no later attempt
// changes; "not explained" is that the log, when it is compared, does not say why, so that the run ends with that error.
//
//	event          phase                                      next       effect
//	-------------  -----------------------------------------  ---------  --------------
//	begin          claiming                                   producing  renew
//	item           producing                                  producing  append
//	canceled       producing                                  canceled
//	a second       canceled                                   canceled   give up
//	a second       lost                                       lost       give up
//	a second       ended                                      ended      leave
//	returned       producing canceled                         ending     append
//	returned       lost                                       lost       leave
//	appended       ending                                     closing    finish
//	refused        producing canceled ending                  (same)     compare
//	compared       ending                                     ending     append
//	not explained  producing canceled                         (same)     cancel
//	not explained  ending                                     closing    cancel finish
//	stored         closing                                    ended
//	stop in log    producing canceled ending closing ended    (same)     cancel
//	end in log     producing canceled                         lost       cancel
//	end in log     ended                                      ended      leave
//	taken over     claiming producing canceled ending closing lost       cancel
//	taken over     ended                                      lost       cancel leave
//	failover       claiming ending closing                    (same)     renew
//	failover       producing canceled                         (same)     compare renew
//	lease due      claiming producing canceled ending closing (same)     renew
//	record lost    producing canceled ending                  (same)     restore
//	expired        claiming producing canceled ending closing (same)     cancel
//	abandoned      claiming                                   left
//
// # Locks
//
// Runs.mu, then view.mu, then Owned.mu. Only Config.Observe is called under Owned.mu, the context of the producer is
// canceled, and tasks are started. A topic's sequencer calls a view, and so an owner, under its own lock, and is closed
// under Runs.mu. The store is read and written under no lock.
//
// # Goroutines
//
// A run has one on the node that owns it, the producer's, and a timer. Others exist only while they call the store: one
// of a pool does the tasks, the timer's renews the lease, and one announces the beginning. They end with the run, except a
// producer that does not return after it was canceled. The deadline of the producer's context is a timer of its own.
//
// A run that is read has one on each node that reads it without owning it, which looks at the lease while the
// owner is silent, and one while the log is read from its beginning. Readers have none.
package runs
