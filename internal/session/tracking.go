package session

import (
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// nobody is a client number that Redis never gives out: it then answers what it answers for one that does not exist.
const nobody = math.MaxInt64

// tracking notes in e what CLIENT TRACKING asks for, and returns the command as Redis is to get it: REDIRECT names a
// connection at Redis there, that of the client whom our own number names.
func (s *Session) tracking(p *dedicatedConn, e *dedicated.Reply, cmd redcon.Command) []byte {
	args := cmd.Args
	e.Effect.Tracks, e.Effect.On = true, len(args) > 2 && equalFold(args[2], "ON")
	if e.Effect.On {
		e.Effect.Call = string(cmd.Raw)
	}
	var sent [][]byte
	for i := 3; i < len(args); i++ {
		switch {
		case equalFold(args[i], "PREFIX"):
			i++
		case equalFold(args[i], "BCAST"):
			e.Effect.BCast = true
		case equalFold(args[i], "REDIRECT") && i+1 < len(args):
			i++
			id, ok := commands.Integer(args[i])
			if !ok {
				return cmd.Raw // Redis says so
			}
			to := dedicated.Redirect{Client: id, Redis: nobody}
			if at, found := s.connectionOf(p, id); found && at != 0 {
				to.Redis = at
			} else if found {
				e.Effect = dedicated.Effect{}
				e.Instead = "ERR client " + strconv.FormatInt(id, 10) + " has no connection of its own at Redis to redirect to: let it SUBSCRIBE __redis__:invalidate first"
				return marking
			}
			e.Effect.To = to
			if sent == nil {
				sent = append(sent, args...)
			}
			sent[i] = strconv.AppendInt(nil, to.Redis, 10)
		}
	}
	if sent == nil {
		return cmd.Raw
	}
	return resp.Command(sent)
}

// connectionOf finds the connection at Redis of a client that invalidations are to go to, 0 if it has none and gets none.
// It stays that client's until the redirection ends.
func (s *Session) connectionOf(p *dedicatedConn, id int64) (redisID int64, found bool) {
	if id == s.peer.id {
		return p.RedisID(), true // which it keeps while it is tracking
	}
	c := s.srv.session(id)
	if c == nil || c.guard.Over() {
		return 0, false
	}
	c.own.view.Targets.Add(1) // first: giveBackIfUnused looks once more when it has taken the number away
	if redisID = c.own.view.RedisID.Load(); redisID == 0 {
		redisID = c.requestDedicated(s.srv.ctx)
	}
	p.Locked(func(released bool) {
		if redisID == 0 || released {
			c.noTarget()
		} else {
			p.targets = append(p.targets, c)
		}
	})
	return redisID, true
}

// noTarget is the end of one redirection to the client.
func (s *Session) noTarget() {
	if s.own.view.Targets.Add(-1) == 0 {
		s.guard.WakeToAttend()
	}
}

// dropTargets lets the clients whose connections it has named give them back, but for the one with that number; mu is held.
func (p *dedicatedConn) dropTargets(but int64) {
	kept := false // once: it may have been named several times
	p.targets = slices.DeleteFunc(p.targets, func(c *Session) bool {
		if c.peer.id == but && !kept {
			kept = true
			return false
		}
		c.noTarget()
		return true
	})
}

// Idle keeps only the client that the connection's invalidations go to.
func (p *dedicatedConn) Idle(redirected int64) {
	if len(p.targets) > 0 {
		p.dropTargets(redirected)
	}
}

// askOwn asks Redis about the session's own connection; without one any will do, since nothing is set on it.
func (s *Session) askOwn(args [][]byte) (answer []byte, to dedicated.Redirect, err error) {
	p := s.currentDedicated()
	if p == nil {
		answer, err = s.askRaw(resp.Command(args))
		return answer, to, err
	}
	answer, err = p.Ask(&dedicated.Reply{}, backend.QuestionTime, string(args[0]), string(args[1]))
	return answer, p.Status().Redirect, err
}

// clientGetRedir is CLIENT GETREDIR, in our numbers.
func (s *Session) clientGetRedir(args [][]byte) {
	answer, to, err := s.askOwn(args)
	if r, ok := resp.ParseReply(answer); err == nil && ok && isTarget(to, r) {
		s.batch.out = resp.AppendInt(s.batch.out, to.Client)
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
		if i%2 == 1 && string(r.Elems[i-1].Text) == "redirect" && isTarget(to, e) {
			out = resp.AppendInt(out, to.Client)
			continue
		}
		out = append(out, e.Raw...)
	}
	s.batch.out = out
}

// isTarget says whether r is the number at Redis of the client that was named.
func isTarget(to dedicated.Redirect, r resp.Reply) bool {
	return r.Kind == ':' && to.Redis != 0 && string(r.Text) == strconv.FormatInt(to.Redis, 10)
}
