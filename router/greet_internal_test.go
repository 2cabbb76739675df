package router

// Greet lets the tests treat a client as one that has sent $ws:hello.
func (c *Conn) Greet() { c.sub.Greet() }
