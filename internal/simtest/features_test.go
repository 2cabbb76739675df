package simtest

// A feature is a part of the workload in a file of its own: what the application serves, the steps that use
// it, and what must be true afterwards.
type feature struct {
	verbs  []verb
	routes func(*app)         // registers handlers on each node; optional
	client func(*life)        // registers handlers of each client; optional
	check  func(w *world)     // compares what was recorded when all is quiet; optional
	begin  func(w *world) any // returns what the feature records in a simulation; optional
}

// features returns all features.
func features() []feature {
	return []feature{
		topicsFeature(), lastFeature(), joinedFeature(), callsFeature(), usersFeature(), presenceFeature(), statesFeature(), faultsFeature(),
		limitsFeature(), meterFeature(), runsFeature(), slowFeature(), asksFeature(), streamsFeature(), expiryFeature(),
		storeFeature(), rawFeature(), restFeature(), leaksFeature(),
	}
}

// verbs returns the steps of all features.
func verbs() (all []verb) {
	for _, f := range features() {
		all = append(all, f.verbs...)
	}
	return all
}
