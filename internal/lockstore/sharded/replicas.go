package sharded

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// replicaVerbs is how many LOCKs with REPLICAS may be under way in a database of a node, each on a connection of
	// its own: if one waited for a connection, its not-after would pass.
	replicaVerbs = upstream.WaitersMost
	// replicaTurn is how long a LOCK waits for others to be through, at most: no longer than for its replicas.
	// Meanwhile the watchdog passes its hold by.
	replicaTurn = time.Second
)

// errCrowded is why a LOCK with REPLICAS was not sent.
var errCrowded = errors.New("too many LOCKs wait for replicas")

// replicaTurns are the LOCKs with REPLICAS that are under way, and those that wait for a turn.
type replicaTurns struct {
	mu  sync.Mutex
	all map[replicaKey]*databaseTurns // of databases in which there are some
}

type replicaKey struct {
	node any // see lockstore.Location
	db   int
}

// databaseTurns are the turns of a database of a node.
type databaseTurns struct {
	taken chan struct{} // has one for each LOCK that is under way
	users int           // that are under way or wait; replicaTurns.mu guards it
}

// enter waits for a turn, before the LOCK's not-after is computed. leave ends the turn; err: there was none in time, or
// ctx ended.
func (r *replicaTurns) enter(ctx context.Context, key replicaKey, wait time.Duration) (leave func(), err error) {
	p := r.use(key)
	leave = func() { <-p.taken; r.done(key, p) }
	select {
	case p.taken <- struct{}{}: // also if there is no time to wait
		return leave, nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case p.taken <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errCrowded
	}
	r.done(key, p)
	return nil, &upstream.NotSentError{Cause: err}
}

func (r *replicaTurns) use(key replicaKey) *databaseTurns {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.all[key]
	if p == nil {
		p = &databaseTurns{taken: make(chan struct{}, replicaVerbs)}
		r.all[key] = p
	}
	p.users++
	return p
}

func (r *replicaTurns) done(key replicaKey, p *databaseTurns) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(r.all, key)
	}
}
