package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// Unsent says that a Budget allowed no connection for any part of a plan that is done: no node has run anything of it. A
// *upstream.FullError in Err alone says less: other parts may have run.
func (p *Plan) Unsent() bool {
	ran := func(u unit) bool { return !upstream.IsFull(u.err) }
	return upstream.IsFull(p.Err) && !slices.ContainsFunc(p.units, ran)
}

// Resume readies a plan whose Err is a *upstream.FullError for another Do, which sends the parts that were refused and no other. The
// reply is not streamed then. It changes no other plan.
func (p *Plan) Resume() {
	if !upstream.IsFull(p.Err) {
		return
	}
	p.Err, p.stream, p.done = nil, nil, false
	if p.whole != nil {
		p.whole.retry()
	}
	for i := range p.units {
		if u := &p.units[i]; upstream.IsFull(u.err) {
			u.retry()
		}
	}
}

// retry readies a unit that was not sent as if nothing had been tried.
func (u *unit) retry() {
	u.attempts, u.outcome = nil, outcome{}
	if !u.home {
		u.node, u.ask = nil, false
	}
}
