package session

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// forwardLane is forwardLane with a cluster upstream: a lane has a connection to each node that is asked.
func (u *clustered) forwardLane(quick bool) time.Duration {
	if u.s.mustLogIn() {
		return u.forwardWith(u.executor(), false)
	}
	if u.quick == nil {
		u.lane = u.s.srv.lanes.Join(u.s.ident)
		u.quick = u.newExecutor(u.lane.ID())
	}
	if !quick || u.lane.Stuck() {
		if id, free := u.s.srv.lanes.Take(u.s.ident); free {
			defer u.s.srv.lanes.GiveBack(id)
			e := u.newExecutor(id)
			defer e.Close()
			if took, sent := u.forwardIf(e, false); sent {
				return took
			}
		}
	}
	return u.lane.Timed(func() { u.forwardWith(u.quick, false) })
}

// reload implements way.
func (u *clustered) reload(start int, ends []int, shas []string, seen uint64, send func() time.Duration) {
	u.sendAgain(start, ends, u.loadAgain(shas, seen), send)
}

// sendAgain sends again what was loaded again in a cluster, where a script that has run at one node is unknown to the others.
// Order is kept by slot: what is sent again has nothing behind it that ran in its slot, or in several, or in none.
func (u *clustered) sendAgain(start int, ends []int, states []scriptcache.State, send func() time.Duration) {
	b := u.s.batch
	var again []int
	behind := map[int]bool{} // slots in which something ran
look:
	for i := len(states) - 1; i >= 0; i-- {
		slot, one := b.nodes.plans[i].Slot()
		switch {
		case states[i] == scriptcache.Loaded && one && !behind[slot]:
			again = append(again, i)
		case states[i] != scriptcache.Unknown: // it did not run, and its NOSCRIPT stands
		case one:
			behind[slot] = true
		default:
			break look
		}
	}
	if len(again) == 0 || u.s.guard.Over() {
		return
	}
	slices.Reverse(again)
	old := append([]byte(nil), b.out[start:]...)
	run, cmds, args, out := b.run, b.cmds, b.nodes.args, b.out[:start]
	b.run, b.cmds, b.nodes.args, b.out = nil, nil, nil, nil
	for _, i := range again {
		b.run, b.cmds, b.nodes.args = append(b.run, run[i]), append(b.cmds, cmds[i]), append(b.nodes.args, args[i])
	}
	b.nodes.apart = true
	send()
	b.nodes.apart = false
	// The replies are the plans', too.
	b.run, b.cmds, b.nodes.args, b.out, b.full, b.fullSize = run, cmds, args, out, nil, 0
	from, next := 0, 0
	for i, end := range ends {
		reply := old[from:end]
		if next < len(again) && again[next] == i {
			p := b.nodes.plans[next]
			if reply = p.Reply; p.Err != nil {
				if u.s.guard.Over() { // closed for it
					return
				}
				reply = resp.AppendError(nil, errorLine(p.Err))
			}
			next++
		}
		from = end
		b.Reply(reply)
	}
}

// loadAgain is reload with a cluster upstream: each script is loaded again at the node that did not have it.
func (u *clustered) loadAgain(shas []string, seen uint64) []scriptcache.State {
	b, states := u.s.batch, make([]scriptcache.State, len(shas))
	done := map[*cluster.Node]bool{}
	for i, sha := range shas {
		n := b.nodes.plans[i].From()
		if sha == "" || n == nil || done[n] {
			continue
		}
		done[n] = true
		var wanted []string
		for k, other := range shas {
			if other != "" && b.nodes.plans[k].From() == n {
				wanted = append(wanted, other)
			}
		}
		known := u.s.srv.reload(n.Upstream(), n.ID, wanted, seen)
		for k, other := range shas {
			if other != "" && b.nodes.plans[k].From() == n {
				states[k] = known[other]
			}
		}
	}
	return states
}

// blockTimeout finds the word of a blocking command that says for how long, and in what unit. 0: there is none.
func blockTimeout(c *commandtable.Command, args [][]byte) (at int, unit time.Duration) {
	switch c.Name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax", "brpoplpush", "blmove":
		return len(args) - 1, time.Second
	case "blmpop", "bzmpop":
		return 1, time.Second
	case "xread", "xreadgroup":
		for i := 1; i+1 < len(args); i++ {
			if bytes.EqualFold(args[i], []byte("BLOCK")) {
				return i + 1, time.Millisecond
			}
		}
	}
	return 0, 0
}

// timeLeft is the command as it is to be sent when so much of its time has passed.
func timeLeft(c *commandtable.Command, args [][]byte, passed time.Duration) []byte {
	at, unit := blockTimeout(c, args)
	if at == 0 {
		return resp.Command(args)
	}
	n, err := strconv.ParseFloat(string(args[at]), 64)
	if err != nil || n <= 0 { // 0: for ever; else Redis says what is wrong
		return resp.Command(args)
	}
	left := max(time.Duration(n*float64(unit))-passed, time.Millisecond)
	words := append([][]byte(nil), args...)
	if unit == time.Second {
		words[at] = strconv.AppendFloat(nil, left.Seconds(), 'f', 3, 64)
	} else {
		words[at] = integerText(left.Milliseconds())
	}
	return resp.Command(words)
}

func integerText(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
