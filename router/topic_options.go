package router

// TopicOptions configure a topic on this node. The zero value is a working configuration.
type TopicOptions struct {
	// SlowConsumer is the policy for publications on the topic. The zero value means
	// Options.SlowConsumer.
	SlowConsumer SlowConsumerPolicy
}

// topicOptions returns the options of a topic, or the zero value if Options.TopicOptions panics.
// It runs under a lock, so a panic is logged later.
func (r *Router) topicOptions(name string) (opts TopicOptions) {
	if r.opts.TopicOptions == nil {
		return TopicOptions{}
	}
	defer func() {
		if v := recover(); v != nil {
			opts = TopicOptions{}
			r.observe(Event{Kind: EventPanicked, Reason: "TopicOptions"})
			r.logAsync("TopicOptions", v)
		}
	}()
	opts = r.opts.TopicOptions(name)
	mustBeSlowConsumerPolicy("TopicOptions.SlowConsumer", opts.SlowConsumer)
	return opts
}
