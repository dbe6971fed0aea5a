package session

import (
	"math"
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
func (s *Session) tracking(p *pinned, e *expect, cmd redcon.Command) []byte {
	args := cmd.Args
	e.effect.tracks, e.effect.on = true, len(args) > 2 && equalFold(args[2], "ON")
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

// connectionOf finds the connection at Redis of a client that others' invalidations are to go to, 0 if it has none and
// gets none, and sees to it that it stays that client's.
func (s *Session) connectionOf(p *pinned, id int64) (redisID int64, found bool) {
	if id == s.id {
		s.view.target.Store(true)
		return p.conn.RedisID(), true
	}
	c := s.srv.session(id)
	if c == nil || c.guard.Over() {
		return 0, false
	}
	if redisID = c.becomeTarget(); redisID == 0 {
		redisID = c.wishFor(s.srv.ctx)
	}
	return redisID, true
}

// becomeTarget keeps the connection the client has for it from now on, and returns its number; 0: it has none. It waits
// for nobody: letGo looks for targets once more when it has taken the number away.
func (s *Session) becomeTarget() int64 {
	s.view.target.Store(true)
	return s.view.redisID.Load()
}

// redirect is what the session's own connection has named last.
func (p *pinned) redirected() redirect {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.redirect
}

// askOwn asks Redis about the session's own connection; without one any will do, since nothing is set on it.
func (s *Session) askOwn(args [][]byte) (answer []byte, to redirect, err error) {
	p := s.pinnedNow()
	if p == nil {
		answer, err = s.askRaw(encode(args))
		return answer, to, err
	}
	answer, err = p.ask(&expect{}, string(args[0]), string(args[1]))
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
