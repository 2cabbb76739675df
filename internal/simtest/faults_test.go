package simtest

import "time"

// Connections break, nodes restart, and the store fails.
func faultsFeature() feature {
	device := func(run func(w *world, host string, s step)) func(*world, step) {
		return func(w *world, s step) {
			w.fault()
			run(w, w.clients[s.Client].host, s)
		}
	}
	span := func(longest time.Duration) func(*draw, *step) {
		return func(d *draw, s *step) { d.node(s); d.client(s); s.For = d.span(longest) }
	}
	return feature{verbs: []verb{
		{name: "cut", weight: [3]int{0, 8, 8}, draw: span(time.Second), run: device(func(w *world, host string, _ step) { w.cluster.Cut(host) })},
		{name: "abandon", weight: [3]int{0, 3, 3}, draw: span(time.Second), run: device(func(w *world, host string, _ step) { w.cluster.Abandon(host) })},
		{name: "stall", weight: [3]int{0, 3, 3}, draw: span(40 * time.Second), run: device(func(w *world, host string, s step) { w.cluster.Stall(host, s.For) })},
		{name: "restart", weight: [3]int{4, 3, 3}, draw: span(time.Second), run: (*world).restart},
		{name: "restartTwo", weight: [3]int{3, 2, 2}, draw: span(time.Second), run: (*world).restartTwo},
		{name: "kill", weight: [3]int{0, 3, 3}, draw: span(5 * time.Second), run: (*world).kill},
		{name: "cutOff", weight: [3]int{0, 3, 3}, draw: span(30 * time.Second), run: (*world).cutOff},
		{name: "pause", weight: [3]int{0, 2, 2}, draw: span(30 * time.Second), run: (*world).pause},
	}}
}

// restart shuts a node down gracefully and starts it again after For, unless it is the last one that runs. Another step may restart
// another node meanwhile.
func (w *world) restart(s step) {
	if !w.takeDown(s.Node) {
		return
	}
	w.begin(func() {
		w.cluster.Shutdown(s.Node)
		w.startAfter(s)
	})
}

func (w *world) startAfter(s step) {
	time.Sleep(s.For)
	w.cluster.Start(s.Node)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.down, s.Node)
}

// takeDown reports whether a node may be ended: it runs, and so does another one.
func (w *world) takeDown(node int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[node] || len(w.down) == w.plan.Nodes-1 {
		return false
	}
	w.down[node] = true
	return true
}

// restartTwo restarts a node and, For later, the next one.
func (w *world) restartTwo(s step) {
	w.restart(s)
	w.begin(func() {
		time.Sleep(s.For)
		s.Node = s.Node%w.plan.Nodes + 1
		w.restart(s)
	})
}

func (w *world) kill(s step) {
	if !w.takeDown(s.Node) {
		return
	}
	w.fault()
	a := w.app(s.Node)
	w.mu.Lock()
	a.killed = true
	w.mu.Unlock()
	w.cluster.Kill(s.Node)
	w.begin(func() { w.startAfter(s) })
}

func (w *world) cutOff(s step) {
	w.fault()
	w.cluster.CutOff(s.Node)
	w.begin(func() {
		time.Sleep(s.For)
		w.cluster.Reconnect(s.Node)
	})
}

func (w *world) pause(s step) {
	w.fault()
	w.cluster.Pause(s.Node, s.For)
}
