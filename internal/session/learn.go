package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	learnLook  = 10 * time.Millisecond
	learnRetry = time.Second     // after Redis could not be asked
	learnOften = 5 * time.Second // the shortest time until it is asked again
	authOften  = 5 * time.Second // how often it is asked whether it wants a password, which an operator may change
	authTime   = time.Second     // for Redis' answer about a password
)

// learnLoop keeps what is known of Redis up to date: at the start, and again when a connection upstream has been
// lost, since another Redis may stand there. Serve starts it, Shutdown waits for it.
func (s *Server) learnLoop() {
	for s.ctx.Err() == nil {
		wait := learnOften
		if err := s.learn(); err != nil {
			level := slog.LevelDebug
			if errors.Is(err, errNoCommands) {
				level = slog.LevelWarn
			}
			s.log.Log(s.ctx, level, "Redis' command table is not known yet", "error", err)
			s.process.LearnAgain()
			wait = learnRetry
		} else {
			s.facts.learned.Store(true)
		}
		retry.Sleep(s.ctx, wait, nil)
		for retry.Sleep(s.ctx, authOften, s.process.Relearn) {
			if err := s.learnAuth(); err != nil {
				s.log.Debug("Redis cannot be asked whether it wants a password", "error", err)
			}
		}
	}
}

// learn asks Redis for its commands, its limits, and whether clients must authenticate. It asks the last even if the
// first fails, because the service account's own password may have changed. The fields of CLIENT INFO are learned anew
// when a client asks for them.
func (s *Server) learn() error {
	s.clients.fields.Store(nil)
	s.learnErrors()
	err := s.learnTable()
	s.facts.trouble.Store(&err)
	return cmp.Or(err, s.learnLimits(), s.learnAuth())
}

// learnErrors finds out whether an error of a script may look like several replies. Until Redis has said that it may
// not, scripts share no connection.
func (s *Server) learnErrors() {
	service := s.up.common.AsService()
	reply, err := s.askAs(service, "EVAL", `error({err="ERR of lockproxy's,\nto see whether it has two lines"})`, "0")
	if err == nil && bytes.HasPrefix(reply, []byte("-ERR of lockproxy's,")) {
		s.up.common.OneLine.Store(!bytes.Contains(reply, []byte(",\nto")))
	}
}

// learnLimits asks whether Redis closes connections that hold many bytes of replies. One that does not tell is taken to
// have no such limits, as Redis has none by itself.
func (s *Server) learnLimits() error {
	service := s.up.common.AsService()
	reply, err := s.askAs(service, "CONFIG", "GET", "*client*") // before Redis 7 it takes one name only
	if err == nil {
		s.up.common.Limited.Store(backend.LimitsOutput(reply))
	}
	return err
}

var errNoCommands = &upstream.ReplyError{Line: "NOPERM the service account may not run COMMAND, by which lockproxy learns what commands do"}

// learnTable asks for the commands, as the service account.
func (s *Server) learnTable() error {
	service := s.up.common.AsService()
	reply, err := s.askAs(service, "COMMAND")
	if err != nil {
		return err
	}
	if line, bad := resp.ErrorLine(reply); bad && !strings.HasPrefix(line, "NOPERM") {
		return &upstream.ReplyError{Line: line} // BUSY, LOADING: what is known already stands until Redis can answer
	}
	told := commandtable.Listed(reply)
	if len(told) == 0 && s.facts.listed() {
		s.log.Warn("the service account may not run COMMAND any more: what Redis said before stands", "answer",
			string(reply[:min(len(reply), 128)]))
		return nil
	}
	s.facts.mu.Lock()
	s.facts.reply = reply
	s.setTable(told)
	s.facts.mu.Unlock()
	s.warnOfCluster(service)
	if len(told) == 0 {
		return errNoCommands
	}
	s.facts.knownNow.Do(func() {
		s.checkNames(commandtable.Listed(reply)) // parsed once more: clients already use the rows of told
		close(s.facts.known)
	})
	return nil
}

// warnOfCluster logs, once, that a node of a cluster is served as if it were a single Redis. learnLoop calls it.
func (s *Server) warnOfCluster(service upstream.Identity) {
	if s.o.Embedded || s.facts.warned {
		return
	}
	warning, err := s.up.backend.Misnamed(func(words ...string) ([]byte, error) { return s.askAs(service, words...) })
	if s.facts.warned = err == nil && warning != ""; s.facts.warned {
		s.log.Warn("--upstream does not fit what is there: " + warning)
	}
}

// startTime is for how long after its start a mistake in the settings ends the server.
const startTime = 10 * time.Second

// checkNames looks for names in Options.Deny and Allow that no command has: whoever mistypes one believes that a
// command is denied. Soon after the start that is fatal. When Redis tells its commands later there may be clients, so
// it is only logged.
func (s *Server) checkNames(told []*commandtable.Command) {
	err := s.facts.rules.Load().misnamed(told)
	if err == nil {
		return
	}
	if s.o.Fatal != nil && time.Since(s.start) < startTime {
		s.o.Fatal(err)
		return
	}
	s.log.Error("a setting has no effect", "error", err)
}

// misnamed returns an error if the rules have a name that no command has.
func (r *CommandRules) misnamed(told []*commandtable.Command) error {
	unknown := commandtable.Unknown(slices.Concat(r.Deny, r.Allow, r.Blocking), commands.Rows(), told)
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("deny, allow, blocking-commands: no command has the name %s", strings.Join(unknown, ", "))
}

// Change puts other limits, Allow, Deny and Operators in force from the next command on, for clients that are
// there as well, or changes nothing and returns an error. The rest of l and r stays as it was in Options.
func (s *Server) Change(l Limits, r CommandRules) error {
	if err := s.changeRules(r); err != nil {
		return err
	}
	if s.gate.SetBounds(l.bounds()) {
		for _, c := range s.clients.snapshot() {
			c.client.BoundsChanged()
		}
	}
	s.o.Locks.LimitUsers(l.LocksPerUser)
	return nil
}

// changeRules is Change without the limits.
func (s *Server) changeRules(r CommandRules) error {
	s.facts.mu.Lock()
	defer s.facts.mu.Unlock()
	r.Blocking, r.Fatal = s.o.Blocking, s.o.Fatal
	told := commandtable.Listed(s.facts.reply)
	if len(told) > 0 {
		if err := r.misnamed(told); err != nil {
			return err
		}
	}
	s.facts.rules.Store(&r)
	s.setTable(told)
	return nil
}

func (l Limits) bounds() downstream.Bounds {
	return downstream.Bounds{MaxClients: l.MaxClients, NormalOutput: l.NormalOutput,
		PubSubOutput: l.PubSubOutput,
		IdleTimeout:  l.IdleTimeout, HandshakeTimeout: l.HandshakeTimeout,
		Commands: resp.Limits{Bulk: l.MaxBulk, Command: max(resp.DefaultLimits.Command, 2*l.MaxBulk)}}
}

// askAs asks on a connection of its own, so that a Redis that hangs cannot keep the learner from ending.
func (s *Server) askAs(id upstream.Identity, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, backend.QuestionTime)
	defer cancel()
	return backend.Ask(ctx, s.up.backend.Node(), id, args...)
}

// listed says whether Redis has listed its commands.
func (f *facts) listed() bool {
	select {
	case <-f.known:
		return true
	default:
		return false
	}
}

// awaitTable waits until Redis has listed its commands, but only for as long as a command is retried, and finds the
// command. Before that nobody knows what it does to the connection on which it is sent, nor, in a cluster, to which
// node it goes. A Redis that has been asked for the first time and has not answered yet, as on a busy machine, is waited
// for as long as such an answer may take.
func (s *Session) awaitTable(c *call) {
	if c.answer != nil || s.srv.facts.table.Load().Learned() {
		return
	}
	s.pipes.Send()
	patience := s.srv.up.backend.RetryFor()
	if s.srv.facts.trouble.Load() == nil {
		patience = backend.QuestionTime
	}
	ctx, cancel := context.WithTimeout(s.client.Context(), patience)
	defer cancel()
	select {
	case <-s.srv.facts.known:
	case <-ctx.Done():
	}
	t := s.srv.facts.table.Load()
	if !t.Learned() {
		c.fail(s.srv.facts.unknown())
		return
	}
	if c.row, c.answer = t.findRow(c.Args); c.row != nil {
		s.activity.last.Store(&c.row.Name)
	}
}

// fail has the command not be run because of err.
func (c *call) fail(err error) { c.refuse(refusedFor(err)) }

// refusedFor is the row, and the answer, of a command that is not run because of err.
func refusedFor(err error) (*commandtable.Command, answer) {
	return commandtable.Refused(client.ErrorLine(err)), func(s *Session, _ [][]byte) { s.client.Fail(err) }
}

var errNotLearned = &upstream.NotSentError{Cause: errors.New("it is not known yet which commands Redis has")}

// unknown says why Redis' commands are not known.
func (f *facts) unknown() error {
	if err := f.trouble.Load(); err != nil && *err != nil {
		return *err
	}
	return errNotLearned
}

// learnedBefore is how long before the end of its time Learned answers, so that whoever asks still gets the answer.
const learnedBefore = 100 * time.Millisecond

// Learned says why commands cannot be served yet; nil: Redis has been asked which it has. At the start it waits for
// that, almost until ctx ends.
func (s *Server) Learned(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-learnedBefore))
		defer cancel()
	}
	for !s.facts.learned.Load() {
		if ctx.Err() != nil {
			return s.facts.unknown()
		}
		retry.Sleep(ctx, learnLook, nil)
	}
	return nil
}

// Look takes the locks that every new client needs: it returns at once unless one of them is stuck.
func (s *Server) Look() {
	s.gate.Places()
	s.clients.lookStuck()
}

// longestAsked is how long a name may be of which Redis is asked. What is longer is refused, as Redis refuses what it
// does not have.
const longestAsked = 1 << 10

// resolve finds out what a command is that Redis did not list.
func (s *Session) resolve(c *call) {
	if c.row != nil {
		return
	}
	s.pipes.Send()
	if s.client.End.Over() {
		return
	}
	c.row, c.answer = s.lookedUp(c.Args)
	s.batch.Timing.Elsewhere()
}

// lookedUp asks Redis what a command is: an unknown one, one of a module loaded since, or one that redis.conf has renamed, which
// COMMAND lists under its old name only. Without Redis' answer the command is refused: it could be any.
func (s *Session) lookedUp(args [][]byte) (row *commandtable.Command, run answer) {
	if len(args[0]) > longestAsked {
		return refusedFor(s.srv.facts.table.Load().refusal(args))
	}
	err := s.access.Admitted()
	if client.LogIn(err) {
		return refusedFor(s.srv.facts.table.Load().refusal(args))
	}
	var told []*commandtable.Command
	if err == nil {
		told, err = s.describe(args[0])
	}
	switch {
	case err != nil:
		return refusedFor(err)
	case len(told) == 0:
		return commandtable.Unlisted, nil
	}
	t := s.srv.facts.table.Load()
	c := t.Lookup([]byte(told[0].Name))
	if c == nil {
		c = told[0]
		commandtable.MayBlock(told, s.srv.o.Blocking)
		s.srv.process.LearnAgain()
	}
	return t.withAnswer(c.Of(args))
}

// describe asks Redis about a command, which a module may have added or redis.conf renamed: as the service account, or
// where that may not ask, as the client. What Redis says does not depend on who asks. Nothing is told of a command that
// Redis does not have.
func (s *Session) describe(name []byte) ([]*commandtable.Command, error) {
	question := []string{"COMMAND", "INFO", string(name)}
	ctx, cancel := context.WithTimeoutCause(s.client.Context(), backend.QuestionTime, upstream.ErrTimeout)
	defer cancel()
	reply, err := s.srv.up.common.AskAsService(ctx, s.srv.up.backend.Node(), question...)
	if line, bad := resp.ErrorLine(reply); err == nil && bad && strings.HasPrefix(line, "NOPERM") {
		reply, err = s.access.Ask(backend.Destination{}, bytesOf(question)...)
	}
	if line, bad := resp.ErrorLine(reply); err == nil && bad {
		if strings.HasPrefix(line, "NOPERM") {
			line = "NOPERM neither this user nor the service account may run COMMAND INFO, by which lockproxy learns what '" +
				commands.Clip(name, commands.ClipMost) + "' is"
		}
		err = &upstream.ReplyError{Line: line}
	}
	return commandtable.Listed(reply), err
}
