package router

// An Identity is the authenticated tenant and user of a connection. The zero Identity is that
// of an anonymous connection.
type Identity struct {
	TenantID string // "" if there are no tenants
	UserID   string // "" if the connection is anonymous
	Data     any    // for the application; the router does not use it
}

// stored returns what Conn.identity holds for id. Data is compared with nil only, because it may
// have a type that is not comparable.
func (id Identity) stored() *Identity {
	if id.TenantID == "" && id.UserID == "" && id.Data == nil {
		return nil
	}
	return &id
}

// user returns the key of the identity's user. Its userID is empty if the identity is anonymous.
func (id Identity) user() userKey { return userKey{id.TenantID, id.UserID} }

// Identity returns what Options.Authenticate returned, or the zero Identity.
func (c *Conn) Identity() Identity {
	if id := c.identity.Load(); id != nil {
		return *id
	}
	return Identity{}
}
