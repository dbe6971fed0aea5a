package session

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	learnRetry = time.Second     // after Redis could not be asked
	learnOften = 5 * time.Second // at most once in it
	authOften  = 5 * time.Second // and whether a password is needed, an operator may change under way
)

// learnLoop keeps what is known of Redis up to date: at the start, and again when a connection upstream has been
// lost, since another Redis may stand there. Serve starts it, Shutdown waits for it.
func (s *Server) learnLoop() {
	for s.ctx.Err() == nil {
		wait := learnOften
		if err := s.learn(); err != nil {
			s.log.Debug("Redis' command table is not known yet", "error", err)
			s.learnAgain()
			wait = learnRetry
		}
		s.pause(wait, nil)
		for s.ctx.Err() == nil && !s.pause(authOften, s.relearn) {
			if err := s.learnAuth(); err != nil {
				s.log.Debug("Redis cannot be asked whether it wants a password", "error", err)
			}
		}
	}
}

// pause waits for d, the server's end, or wake, and says whether it was wake.
func (s *Server) pause(d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
		return true
	case <-timer.C:
	case <-s.ctx.Done():
	}
	return false
}

// learnAgain has the loop ask once more. It never blocks.
func (s *Server) learnAgain() {
	select {
	case s.relearn <- struct{}{}:
	default:
	}
}

// learn asks Redis for its commands, and whether clients must authenticate: also when the service account, whose
// password may be the one that has changed, learns no commands.
func (s *Server) learn() error {
	err := s.learnTable()
	if auth := s.learnAuth(); err == nil {
		err = auth
	}
	return err
}

// learnTable asks for the commands, as the service account.
func (s *Server) learnTable() error {
	service := s.o.Service
	service.DB, service.Proto = 0, 2
	reply, err := s.askAs(service, "COMMAND")
	if err != nil {
		return err
	}
	if line, bad := isError(reply); bad && !strings.HasPrefix(line, "NOPERM") {
		return &upstream.ReplyError{Line: line} // BUSY, LOADING: what is known already stands until Redis can tell
	}
	s.table.Store(newTable(s.o.Allow, s.o.Deny, learnCommands(reply)))
	return nil
}

// learnAuth asks whether clients must authenticate. When they must from now on, connections that were made without a
// password stay with those who use them, as in Redis, but take nobody else in.
func (s *Server) learnAuth() error {
	ping, err := s.askAs(upstream.Identity{Proto: 2}, "PING")
	if err != nil {
		return err
	}
	must := bytes.HasPrefix(ping, []byte("-NOAUTH"))
	if was := s.mustAuth.Swap(must); must && !was {
		s.o.Node.RetireAnonymous()
	}
	return nil
}

// askAs asks on a connection of its own, so that a Redis that hangs cannot keep the learner from ending.
func (s *Server) askAs(id upstream.Identity, args ...string) ([]byte, error) {
	p, err := s.o.Node.Private(s.ctx, id)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(s.ctx, p.Release)
	defer func() {
		if stop() {
			p.Release()
		}
	}()
	var got gathered
	err = p.Do(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, args...)}, Sink: &got})
	return got, err
}

// learnCommands reads the reply of COMMAND: which names change nothing, and which may block, modules' and subcommands
// included.
func learnCommands(reply []byte) []*command {
	all, ok := parseReply(reply)
	if !ok {
		return nil
	}
	var learned []*command
	for _, entry := range all.elems {
		c := learnCommand(entry)
		if c == nil {
			continue
		}
		learned = append(learned, c)
		if len(entry.elems) < 10 {
			continue
		}
		for _, sub := range entry.elems[9].elems {
			if c := learnCommand(sub); c != nil {
				learned = append(learned, c)
			}
		}
	}
	return learned
}

// learnCommand reads one entry; nil: there is no such command.
func learnCommand(entry reply) *command {
	if len(entry.elems) < 3 {
		return nil
	}
	c := &command{name: strings.ToLower(string(entry.elems[0].text)), arity: integerOf(entry.elems[1])}
	for _, flag := range entry.elems[2].elems {
		switch string(flag.text) {
		case "readonly":
			c.readOnly = true
		case "blocking":
			c.pin = pinBlock
		}
	}
	return c
}

// integerOf is a small integer of a reply.
func integerOf(r reply) int {
	n, _ := strconv.Atoi(string(r.text))
	return n
}

// stranger answers a command that Redis did not list: an unknown one, one of a module loaded since, or one that redis.conf
// has renamed, which COMMAND lists under its old name only. A renamed MONITOR would take over a shared connection.
func (s *Session) stranger(args [][]byte) {
	if s.srv.o.Embedded { // it answers with all of its table, and renames nothing
		s.enqueue(encode(args), nil)
		return
	}
	c, run := s.resolve(args)
	switch {
	case run != nil:
		run(s, args)
	case c != nil && c.pin.starts():
		s.commandPinned(nil, redcon.Command{Raw: encode(args), Args: args}, c, nil)
	default:
		s.enqueue(encode(args), c)
	}
}

// resolve finds out what a command is that Redis did not list; nil: Redis has no such command either, or does not tell
// this user.
func (s *Session) resolve(args [][]byte) (*command, answer) {
	info, err := s.ask("COMMAND", "INFO", string(args[0]))
	if err != nil {
		return nil, nil
	}
	told := learnCommands(info)
	if len(told) == 0 {
		return nil, nil
	}
	c := lookUp(s.srv.table.Load().commands, []byte(told[0].name))
	if c == nil {
		c = told[0]
		s.srv.learnAgain()
	}
	return c.find(args)
}

// limitsFor are the limits of a client's commands. Redis gives those who have yet to authenticate very small ones.
func (s *Server) limitsFor(authenticated bool) resp.Limits {
	if !authenticated && s.mustAuth.Load() {
		return resp.UnauthenticatedLimits
	}
	return s.limits
}
