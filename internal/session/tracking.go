package session

import (
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// redirect is whom CLIENT TRACKING … REDIRECT has named: our number of that client, and that of its connection at Redis.
type redirect struct{ client, redis int64 }

// nobody is a client number that Redis never gives out: it then answers what it answers for one that does not exist.
const nobody = math.MaxInt64

// tracking notes in e what CLIENT TRACKING asks for, and returns the command as Redis is to get it: REDIRECT names a
// connection at Redis there, that of the client whom our own number names.
func (s *Session) tracking(p *dedicated, e *pendingReply, cmd redcon.Command) []byte {
	args := cmd.Args
	e.effect.tracks, e.effect.on = true, len(args) > 2 && equalFold(args[2], "ON")
	if e.effect.on {
		e.effect.call = string(cmd.Raw)
	}
	var sent [][]byte
	for i := 3; i < len(args); i++ {
		switch {
		case equalFold(args[i], "PREFIX"):
			i++
		case equalFold(args[i], "BCAST"):
			e.effect.bcast = true
		case equalFold(args[i], "REDIRECT") && i+1 < len(args):
			i++
			id, ok := integer(args[i])
			if !ok {
				return cmd.Raw // Redis says so
			}
			to := redirect{id, nobody}
			if at, found := s.connectionOf(p, id); found && at != 0 {
				to.redis = at
			} else if found {
				e.effect = effect{}
				e.instead = "ERR client " + strconv.FormatInt(id, 10) + " has no connection of its own at Redis to redirect to: let it SUBSCRIBE __redis__:invalidate first"
				return marking
			}
			e.effect.to = to
			if sent == nil {
				sent = append(sent, args...)
			}
			sent[i] = strconv.AppendInt(nil, to.redis, 10)
		}
	}
	if sent == nil {
		return cmd.Raw
	}
	return encode(sent)
}

// connectionOf finds the connection at Redis of a client that invalidations are to go to, 0 if it has none and gets none.
// It stays that client's until the redirection ends.
func (s *Session) connectionOf(p *dedicated, id int64) (redisID int64, found bool) {
	if id == s.id {
		return p.conn.RedisID(), true // which it keeps while it is tracking
	}
	c := s.srv.session(id)
	if c == nil || c.guard.Over() {
		return 0, false
	}
	c.view.targets.Add(1) // first: giveBackIfUnused looks once more when it has taken the number away
	if redisID = c.view.redisID.Load(); redisID == 0 {
		redisID = c.requestDedicated(s.srv.ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if redisID == 0 || p.released {
		c.noTarget()
	} else {
		p.targets = append(p.targets, c)
	}
	return redisID, true
}

// noTarget is the end of one redirection to the client.
func (s *Session) noTarget() {
	if s.view.targets.Add(-1) == 0 {
		s.guard.WakeToAttend()
	}
}

// dropTargets lets the clients whose connections it has named give them back, but for the one with that number; mu is held.
func (p *dedicated) dropTargets(but int64) {
	kept := false // once: it may have been named several times
	p.targets = slices.DeleteFunc(p.targets, func(c *Session) bool {
		if c.id == but && !kept {
			kept = true
			return false
		}
		c.noTarget()
		return true
	})
}

// settleTargets keeps, when no reply is pending, only the client that the connection's invalidations go to; mu is held.
func (p *dedicated) settleTargets() {
	if len(p.targets) == 0 || len(p.pending) > 0 {
		return
	}
	but := int64(0)
	if p.state.tracking {
		but = p.state.redirect.client
	}
	p.dropTargets(but)
}

// redirect is what the session's own connection has named last.
func (p *dedicated) redirected() redirect {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.redirect
}

// askOwn asks Redis about the session's own connection; without one any will do, since nothing is set on it.
func (s *Session) askOwn(args [][]byte) (answer []byte, to redirect, err error) {
	p := s.currentDedicated()
	if p == nil {
		answer, err = s.askRaw(encode(args))
		return answer, to, err
	}
	answer, err = p.ask(&pendingReply{}, string(args[0]), string(args[1]))
	return answer, p.redirected(), err
}

// clientGetRedir is CLIENT GETREDIR, in our numbers.
func (s *Session) clientGetRedir(args [][]byte) {
	answer, to, err := s.askOwn(args)
	if r, ok := resp.ParseReply(answer); err == nil && ok && to.names(r) {
		s.batch.out = resp.AppendInt(s.batch.out, to.client)
		return
	}
	s.relay(answer, err)
}

// clientTrackingInfo is CLIENT TRACKINGINFO, in our numbers.
func (s *Session) clientTrackingInfo(args [][]byte) {
	answer, to, err := s.askOwn(args)
	r, ok := resp.ParseReply(answer)
	if err != nil || !ok || len(r.Elems) == 0 {
		s.relay(answer, err)
		return
	}
	out := resp.AppendMap(s.batch.out, s.ident.Proto, len(r.Elems)/2)
	for i, e := range r.Elems {
		if i%2 == 1 && string(r.Elems[i-1].Text) == "redirect" && to.names(e) {
			out = resp.AppendInt(out, to.client)
			continue
		}
		out = append(out, e.Raw...)
	}
	s.batch.out = out
}

// names says whether r is the number at Redis of the client that was named.
func (to redirect) names(r resp.Reply) bool {
	return r.Kind == ':' && to.redis != 0 && string(r.Text) == strconv.FormatInt(to.redis, 10)
}
