package upstream

import (
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// mostReserved is the largest number of a Budget's connections that are reserved for shared ones.
const mostReserved = 64

// Budget bounds the connections to Redis that clients cause, over all nodes that have it in their NodeOptions. One
// bound is for all connections, another for those of one user that serve a single client each. A part is reserved for
// shared connections, so that clients that subscribe or block do not keep others from ordinary commands. The proxy's
// own connections, for locks for example, are not counted here: see termConn.asOwn. A nil Budget counts nothing and has
// no bound.
type Budget struct {
	total, perUser, reserve int

	mu    sync.Mutex // guards all below; a leaf
	used  int
	alone int     // of these, those that serve one client
	users users   // connections that serve one client
	nodes []*Node // whose idle connections can make room
}

// NewBudget returns a Budget of total connections, of which each user may have perUser that serve a single client;
// perUser 0 stands for three quarters of total.
func NewBudget(total, perUser int) *Budget {
	if perUser <= 0 {
		perUser = max(1, total*3/4)
	}
	return &Budget{total: total, perUser: perUser, reserve: min(mostReserved, total/4), users: users{}}
}

// FullError says that a Budget does not allow another connection. Nothing was sent.
type FullError struct{ User bool } // the user's bound was reached, not the total

func (e *FullError) Error() string {
	if e.User {
		return "max number of upstream connections reached for this user"
	}
	return "max number of upstream connections reached"
}

// Used returns how many connections there are, and how many there may be; 0, 0 of a nil Budget.
func (b *Budget) Used() (used, total int) {
	if b == nil {
		return 0, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.total
}

// share is one connection's part of a Budget.
type share struct {
	budget *Budget
	own    bool // of the proxy: see termConn.asOwn
	once   sync.Once

	// Guarded by budget.mu once it is counted. The user of an idle connection never changes, and is read without.
	user  string // "": a shared connection, which is counted for no user
	given bool   // it is counted no more
}

// admit counts one more connection of id; alone says that it serves a single client. If there is no room, idle
// connections are closed. The error is a *FullError.
func (b *Budget) admit(id Identity, alone bool) (*share, error) {
	switch {
	case id.For == Questions:
		return ownShare(), nil
	case b == nil:
		return &share{}, nil
	}
	s := &share{budget: b}
	if alone {
		s.user = id.account()
	}
	for {
		full := b.add(s)
		if full == nil {
			return s, nil
		}
		user := ""
		if full.User {
			user = s.user
		}
		if !b.makeRoom(user) {
			telemetry.UpstreamRefused.Add(1)
			return nil, full
		}
	}
}

// add counts s, unless there is no room.
func (b *Budget) add(s *share) *FullError {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.user != "" && b.users[s.user] >= b.perUser:
		return &FullError{User: true}
	case b.used >= b.total, s.user != "" && b.alone >= b.total-b.reserve:
		return &FullError{}
	}
	b.used++
	if s.user != "" {
		b.alone++
		b.users[s.user]++
	}
	return nil
}

// makeRoom closes one idle connection of the user, or of anybody for "", and says whether there was one.
func (b *Budget) makeRoom(user string) bool {
	b.mu.Lock()
	nodes := slices.Clone(b.nodes)
	b.mu.Unlock()
	for _, n := range nodes {
		if n.closeIdle(user) {
			return true
		}
	}
	return false
}

// give takes the connection off the Budget; only the first call does so.
func (s *share) give() {
	b := s.budget
	if b == nil && !s.own {
		return
	}
	s.once.Do(func() {
		if s.own {
			telemetry.UpstreamOwn.Add(-1)
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.used--
		s.given = true
		if s.user == "" {
			return
		}
		b.alone--
		b.users.less(s.user)
	})
}

// move counts a connection that serves one client for id's user from now on, because the client has logged in there. It
// is there already: so it is not refused when that user has too many, but the next one is.
func (s *share) move(id Identity) {
	b := s.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.given || s.user == "" {
		return
	}
	b.users.less(s.user)
	s.user = id.account()
	b.users[s.user]++
}

// users counts connections by user.
type users map[string]int

// less counts one less for a user.
func (u users) less(user string) {
	if u[user]--; u[user] == 0 {
		delete(u, user)
	}
}

func (b *Budget) join(n *Node) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.nodes = append(b.nodes, n)
	b.mu.Unlock()
}

func (b *Budget) leave(n *Node) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.nodes = slices.DeleteFunc(b.nodes, func(other *Node) bool { return other == n })
	b.mu.Unlock()
}

// account is the user for whom a Budget counts a connection of id.
func (id Identity) account() string {
	if id.Anonymous() {
		return "(nobody)"
	}
	return id.userName()
}

// closeIdle closes one connection that nobody uses: one that was counted for user, or any for "". It says whether there
// was one.
func (n *Node) closeIdle(user string) bool {
	if n.dedicated.closeOldest(user) {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.IndexFunc(n.idle, func(p *Pipe) bool { return user == "" || p.share.user == user })
	if at >= 0 {
		n.drop(n.idle[at])
	}
	return at >= 0
}

// ownShare is for a Pipe of the proxy's own.
func ownShare() *share {
	telemetry.UpstreamOwn.Add(1)
	return &share{own: true}
}
