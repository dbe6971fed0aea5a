package share

import "sync/atomic"

// Client is whom one client's locks count for. The zero value is nobody, who has no limits. Its verbs come one after
// the other.
type Client struct {
	user *User
	asks atomic.Bool // a verb asks for a lock, which counts already
}

// Ask counts a lock that is asked for. It is Answered, whatever comes of it.
func (c *Client) Ask() error {
	if c.user == nil {
		return nil
	}
	err := c.user.Ask()
	c.asks.Store(err == nil)
	return err
}

// Answered says that Ask's lock was granted or refused.
func (c *Client) Answered() {
	if c.asks.Swap(false) {
		c.user.answered()
	}
}

// Held counts a lock that the client has now, or with -1 has no more; the one that it asks for counts already. Calls of
// Held and Move come one after the other.
func (c *Client) Held(n int) {
	if n < 0 || !c.asks.Swap(false) {
		c.user.hold(n)
	}
}

// Move has the client's locks, so many of them, count for another user. It is called like a verb, too.
func (c *Client) Move(to *User, locks int) {
	c.user.hold(-locks)
	c.user = to
	to.hold(locks)
}

// Wait counts a verb that waits. Unless there is an error, Waited is its end.
func (c *Client) Wait() error {
	if c.user == nil {
		return nil
	}
	return c.user.Wait()
}

// Waited undoes a Wait.
func (c *Client) Waited() {
	if c.user != nil {
		c.user.waited()
	}
}

// Lease is a named owner's lock, which counts for a user until it ends.
type Lease struct{ user *User }

// Lease counts a lock that a named owner was given through the client, for the present user.
func (c *Client) Lease() Lease {
	c.Held(1)
	return Lease{c.user}
}

// Counts says whether the lease counts for the client's present user.
func (c *Client) Counts(l Lease) bool { return l.user == c.user }

// End says that the lease is over.
func (l Lease) End() { l.user.hold(-1) }
