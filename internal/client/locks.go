package client

// LockHolder is the client as the lock engine knows it. Any goroutine may call its methods.
type LockHolder interface {
	// Held is how many locks the client holds.
	Held() int
	// LeaveToExpire has its locks run out, and not be released.
	LeaveToExpire()
	// SetLibrary notes whether the client has named a client library.
	SetLibrary(named bool)
}

// HasLocks notes how the lock engine knows the client, which is from its first lock verb on.
func (c *Client) HasLocks(h LockHolder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said.Library[0] != "" {
		h.SetLibrary(true)
	}
	c.locks.Store(&h)
}

// Held is how many locks the client holds. Any goroutine may call it.
func (c *Client) Held() int {
	if h := c.locks.Load(); h != nil {
		return (*h).Held()
	}
	return 0
}

// LeaveToExpire notes that the outcome of a command is unknown: the client's locks then run out, and are not released.
// Any goroutine may call it.
func (c *Client) LeaveToExpire() {
	if h := c.locks.Load(); h != nil {
		(*h).LeaveToExpire()
	}
}

// LostOne notes that the client has lost a lock. Any goroutine may call it.
func (c *Client) LostOne() { c.untold.Store(true) }

// Told notes that the client is about to be told of all locks that it has lost.
func (c *Client) Told() { c.untold.Store(false) }

// Lockless says that the client holds no locks, and knows of all that it has lost. Any goroutine may call it.
func (c *Client) Lockless() bool {
	return c.Held() == 0 && !c.untold.Load() // in this order: a lock is lost before the client is told
}
