package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	stuckEvery = 250 * time.Millisecond // how often sessions are looked at; every stuckAfter while none of them waits
	// stuckAfter is how long a session must have waited for the same thing before it is asked whether its client is
	// still there. One that has closed, or half-closed, gets that long for pending replies, so that their outcome is
	// known.
	stuckAfter = time.Second
)

// progress is how far the loop that looks for those that wait for long has seen a session come.
type progress struct {
	seen  uint64
	since time.Time // when the step was first seen
}

// stuckLoop ends the waits of clients that have gone, and those that last longer than Options.UpstreamTimeout, until
// the server ends. Ordinary commands that are answered soon cost nothing: only waits that last are looked at, all by
// this goroutine. It also tells whose locks run out.
func (s *Server) stuckLoop() {
	every, calm := stuckEvery, stuckAfter
	if t := s.o.UpstreamTimeout; t > 0 {
		often := max(t/4, time.Millisecond)
		every, calm = min(every, often), min(calm, often)
	}
	timer := time.NewTimer(calm)
	defer timer.Stop()
	var long []*Session
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		now := time.Now()
		s.runOut.tell(s.log, now)
		var waits bool
		long, waits = s.clients.waiting(now, s.o.UpstreamTimeout, long[:0])
		if waits {
			timer.Reset(every)
		} else {
			timer.Reset(calm)
		}
		s.findBlocking(long)
		endDisconnected(long)
		clear(long)
	}
}

// waiting lists the sessions that have waited for the same thing for stuckAfter, and ends waits that have lasted longer
// than most; 0: none. It says whether any waits at all.
func (cs *clients) waiting(now time.Time, most time.Duration, long []*Session) (_ []*Session, some bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.sessions {
		p := &c.activity.progress
		step := c.client.Step.Now()
		some = some || step != 0
		if step == 0 || step != p.seen {
			p.seen, p.since = step, now
			continue
		}
		waited := now.Sub(p.since)
		if most > 0 && waited >= most && c.pipes.Quiet() >= most { // not when it is the client that reads slowly
			c.pipes.EndWait(step, upstream.ErrTimeout)
		}
		if waited >= stuckAfter {
			long = append(long, c)
		}
	}
	return long, some
}

// endDisconnected ends the waits of the sessions whose clients have gone. What such a client has sent before it left is
// sent on, as Redis would run it, without waiting for replies: so only a wait for something else ends the session. A
// session that holds locks waits on: once it has its replies, no command of it can take effect any more, and its locks
// are released. If no reply comes its locks expire, and then its wait is ended too.
func endDisconnected(long []*Session) {
	for _, c := range long {
		if c.client.Held() == 0 && c.client.End.ClientGone() && !c.pipes.EndWait(c.activity.progress.seen, upstream.ErrLeft) {
			c.client.End.HangUp(downstream.Gone, "end of stream")
		}
	}
}

// blockingCommands are the commands that may wait although Redis does not say so of them: those of Options.Blocking,
// and those of modules that were found to. They get a connection to themselves, so that they hold up nobody else's
// commands.
type blockingCommands struct {
	mu  sync.Mutex // a leaf
	all []string   // in lower case
}

func (b *blockingCommands) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// add adds name, and says whether it is new.
func (b *blockingCommands) add(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.all, name) {
		return false
	}
	b.all = append(b.all, name)
	return true
}

// suspect is a module's command for which a session has waited for long.
type suspect struct {
	waits *Session
	step  uint64 // what it waits for
	name  string
}

// findBlocking looks for modules' commands that sessions have long waited for on a shared connection, for judgeLoop. It
// never blocks.
func (s *Server) findBlocking(long []*Session) {
	for _, c := range long {
		name := c.pipes.Module()
		if name == nil || slices.Contains(s.facts.blocking.names(), *name) {
			continue
		}
		select {
		case s.facts.suspects <- suspect{waits: c, step: c.activity.progress.seen, name: *name}:
		default: // others are judged; it is found again
		}
	}
}

// judgeLoop has the commands that findBlocking finds treated as commands that may wait, from the next look at Redis'
// commands on, unless it is Redis that is waited for. Serve starts it, Shutdown waits for it.
func (s *Server) judgeLoop() {
	for {
		select {
		case x := <-s.facts.suspects:
			if s.blocks(x) && s.facts.blocking.add(x.name) {
				s.log.Warn("a module's command is not answered while others are: from now on each call has a connection to itself; --blocking-commands names it from the start",
					"command", x.name)
				s.process.LearnAgain()
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// blocks says whether it is the command that is waited for: Redis serves others, and stuckAfter later the session waits
// still, whose reply was on its way if Redis has just come back.
func (s *Server) blocks(x suspect) bool {
	ctx, cancel := context.WithTimeout(s.ctx, stuckAfter)
	defer cancel()
	if !s.servesOthers(ctx) {
		return false
	}
	retry.Sleep(s.ctx, stuckAfter, nil)
	return x.waits.client.Step.Now() == x.step
}

// servesOthers says whether all masters run a script, which waits when writes are paused, too.
func (s *Server) servesOthers(ctx context.Context) bool {
	var asked sync.WaitGroup
	var failed atomic.Bool
	for _, m := range s.up.backend.Members() {
		if m.Role == "master" {
			asked.Go(func() {
				reply, err := backend.Ask(ctx, m.Node, s.up.common.AsService(), "EVAL", "return 1", "0")
				line, bad := resp.ErrorLine(reply)
				if err != nil || bad && !strings.HasPrefix(line, "NOPERM") { // BUSY, LOADING
					failed.Store(true)
				}
			})
		}
	}
	asked.Wait()
	return !failed.Load()
}
