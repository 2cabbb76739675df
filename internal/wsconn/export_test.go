package wsconn

// HandlerOf returns the handler of a connection.
func HandlerOf(c *Conn) Handler { return c.handler }
