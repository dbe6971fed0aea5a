package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// NoConnection says that there was no connection for what ended with err: a Budget allowed none, or a node let the user in no more.
func NoConnection(err error) bool { return upstream.IsFull(err) || upstream.Refused(err) != nil }

// Unsent says that there was no connection for any part of a plan that is done: no node has run anything of it. Err alone says less: other
// parts may have run.
func (p *Plan) Unsent() bool {
	ran := func(u unit) bool { return !NoConnection(u.err) }
	return NoConnection(p.Err) && !slices.ContainsFunc(p.units, ran)
}

// Resume readies a plan for which there was NoConnection for another Do, which sends the parts that were not sent and no other. The
// reply is not streamed then. It changes no other plan.
func (p *Plan) Resume() {
	if !NoConnection(p.Err) {
		return
	}
	p.Err, p.stream, p.done = nil, nil, false
	if p.whole != nil {
		p.whole.retry()
	}
	for i := range p.units {
		if u := &p.units[i]; NoConnection(u.err) {
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
