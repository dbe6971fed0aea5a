package session

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/slowlog"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// timing is how long the commands at work take.
type timing struct {
	began     time.Duration // when they came
	since     time.Duration // when the command before was answered, or else began
	elsewhere time.Duration // spent on commands answered here, or on a connection of the client's own
	waits     time.Duration // spent by the command that is answered here in waiting, for a lock for example
	run       telemetry.Run // the run that is being gathered
	sent      telemetry.Run // all runs that were sent
	runs      time.Duration // number of runs that were sent
}

// begin is called when commands have come.
func (t *timing) begin() {
	now := telemetry.Clock()
	*t = timing{began: now, since: now}
}

// note counts a command of the run.
func (t *timing) note(c *commandtable.Command) {
	if c == nil {
		t.run[telemetry.Other]++
		return
	}
	t.run[c.Family]++
}

// forwarded is called when the run has its replies; upstream is the time for which they were waited for. It returns how
// long the run took in all.
func (t *timing) forwarded(upstream time.Duration) (took time.Duration) {
	before := t.since
	t.since = telemetry.Clock()
	if upstream > 0 { // else it was not sent, or there is no reply
		t.run.Upstream(upstream)
		for f, n := range t.run {
			t.sent[f] += n
		}
		t.runs++
	}
	return t.since - before
}

// answered is called when a command has been answered here, or went to a connection of the client's own.
func (t *timing) answered() {
	now := telemetry.Clock()
	t.elsewhere += now - t.since
	t.since = now
}

// end is called when all replies have been written; upstream is the time for which the runs' replies were waited for.
func (t *timing) end(upstream time.Duration) {
	if t.runs > 0 {
		t.sent.Proxy((telemetry.Clock() - t.began - t.elsewhere - upstream) / t.runs)
	}
}

// slow says whether a command that took so long is one for the slow log.
func (s *Server) slow(took time.Duration) bool {
	least := s.facts.rules.Load().Slow
	return least > 0 && took >= least
}

// wordsIn returns the words of a command of which call is the beginning; "..." stands for what is missing.
func wordsIn(call string) (words [][]byte) {
	if !strings.HasPrefix(call, "*") {
		return bytes.Fields([]byte(call))
	}
	head, rest, _ := strings.Cut(call, "\r\n")
	for n, _ := strconv.Atoi(head[1:]); n > 0; n-- {
		head, word, whole := strings.Cut(rest, "\r\n")
		if !whole {
			return append(words, []byte("..."))
		}
		size, _ := strconv.Atoi(strings.TrimPrefix(head, "$"))
		if size < 0 || size > len(word) {
			return append(words, []byte(word+"..."))
		}
		words, rest = append(words, []byte(word[:size])), strings.TrimPrefix(word[size:], "\r\n")
	}
	return words
}

// noteSlow puts a command, or a run of which it is the first, into the slow log. A command that Redis does not know is
// left out: it was not run.
func (s *Session) noteSlow(took, upstream time.Duration, c *commandtable.Command, words [][]byte, commandsSent int) {
	if c == commandtable.Unlisted {
		return
	}
	s.srv.slowest.Add(slowlog.Entry{
		At: time.Now(), Took: took, Upstream: upstream, Args: commands.Shown(c, words), Commands: commandsSent,
		Client: slowlog.Client{Addr: s.peer.addr, Name: s.Name(), User: s.clientUser()},
	})
}

// Slow implements commands.Operation.
func (s *Session) Slow() *slowlog.Log { return s.srv.Slow() }

// Slow are the last commands that took long.
func (s *Server) Slow() *slowlog.Log { return &s.slowest }
