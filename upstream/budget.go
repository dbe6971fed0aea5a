package upstream

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// mostReserved is the largest number of a Budget's connections that are reserved for shared ones.
const mostReserved = 64

// Budget bounds the connections to Redis that clients cause, over all nodes that have it in their NodeOptions. One
// bound is for all connections, another for those of one user that serve a single client each. A part is reserved for
// shared connections, so that clients that subscribe or block do not keep others from ordinary commands; and half of the
// others for those who cannot do without: of private pipes, and before there is a connection that only makes things
// quicker. The proxy's own connections, for locks for example, are not counted here: see termConn.asOwn. A nil Budget
// counts nothing and has no bound.
type Budget struct {
	mu      sync.Mutex // guards all below; a leaf
	all     bound
	alone   bound   // that serve one client
	private bound   // of these, private pipes
	nodes   []*Node // whose idle connections can make room
}

// bound is how many connections of one kind there are and may be.
type bound struct {
	most, perUser int // perUser 0: each user may have all
	used          int
	users         map[string]int // those that serve one client
}

// NewBudget returns a Budget of total connections, of which each user may have perUser that serve a single client;
// perUser 0 stands for three quarters of total.
func NewBudget(total, perUser int) *Budget {
	if perUser <= 0 {
		perUser = max(1, total*3/4)
	}
	alone := total - min(mostReserved, total/4)
	return &Budget{
		all:     bound{most: total, users: map[string]int{}},
		alone:   bound{most: alone, perUser: perUser, users: map[string]int{}},
		private: bound{most: half(alone), perUser: half(perUser), users: map[string]int{}},
	}
}

// half is so many of n, but one at least.
func half(n int) int { return (n + 1) / 2 }

// refuses says why there may be no further connection of a user; nil: there may be.
func (b *bound) refuses(user string) error {
	switch {
	case b.perUser > 0 && b.users[user] >= b.perUser:
		return &FullError{User: true}
	case b.used >= b.most:
		return &FullError{}
	}
	return nil
}

// countUser counts so many more, or less, of a user.
func (b *bound) countUser(user string, more int) {
	b.used += more
	if b.users[user] += more; b.users[user] == 0 {
		delete(b.users, user)
	}
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
	return b.all.used, b.all.most
}

// share is one connection's part of a Budget.
type share struct {
	budget *Budget
	own    bool        // of the proxy: see termConn.asOwn
	given  atomic.Bool // it is counted no more
	bounds []*bound

	// user is guarded by budget.mu once it is counted. That of an idle connection never changes, and is read without. "": a
	// shared connection, which is counted for no user.
	user string
}

// admit counts one more connection of id. If there is no room, idle connections are closed. The error is a *FullError.
func (b *Budget) admit(id Identity, kind pipeKind) (*share, error) {
	switch {
	case id.For == Questions:
		return ownShare(), nil
	case b == nil:
		return &share{}, nil
	}
	s := &share{budget: b, bounds: []*bound{&b.all}}
	switch kind {
	case dedicatedConn:
		s.user, s.bounds = id.account(), []*bound{&b.alone, &b.all}
	case privatePipe:
		s.user, s.bounds = id.account(), []*bound{&b.private, &b.alone, &b.all}
	}
	quicker := id.quicker(kind)
	for {
		err := b.addShare(s, quicker)
		full, is := errors.AsType[*FullError](err)
		if !is {
			return s, nil
		}
		user := ""
		if full.User {
			user = s.user
		}
		if quicker || !b.makeRoom(user) {
			return nil, full
		}
	}
}

// addShare counts s, unless there is no room, or less than half of all if the connection only makes things quicker.
func (b *Budget) addShare(s *share, quicker bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if quicker && b.all.used >= half(b.all.most) {
		return &FullError{}
	}
	for _, bd := range s.bounds {
		if err := bd.refuses(s.user); err != nil {
			return err
		}
	}
	for _, bd := range s.bounds {
		bd.countUser(s.user, 1)
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
	switch {
	case b == nil && !s.own, s.given.Swap(true):
		return
	case s.own:
		telemetry.UpstreamOwn.Add(-1)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bd := range s.bounds {
		bd.countUser(s.user, -1)
	}
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
	if s.given.Load() || s.user == "" {
		return
	}
	for _, bd := range s.bounds {
		bd.countUser(s.user, -1)
		bd.countUser(id.account(), 1)
	}
	s.user = id.account()
}

func (b *Budget) addNode(n *Node) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.nodes = append(b.nodes, n)
	b.mu.Unlock()
}

func (b *Budget) dropNode(n *Node) {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dropOldest(func(c keeps) bool { return user == "" || c.its().share.user == user })
}

// ownShare is for a Pipe of the proxy's own.
func ownShare() *share {
	telemetry.UpstreamOwn.Add(1)
	return &share{own: true}
}
