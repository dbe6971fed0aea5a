package session

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// blockingCommands are the commands that may wait although Redis does not say so of them: those of Options.Blocking, and those of
// modules that were found to. They get a connection to themselves, so that they hold up nobody else's commands.
type blockingCommands struct {
	mu  sync.Mutex // a leaf
	all []string   // in lower case
}

func (b *blockingCommands) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// add says whether name is new.
func (b *blockingCommands) add(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.all, name) {
		return false
	}
	b.all = append(b.all, name)
	return true
}

// findBlocking looks for commands of modules among those that sessions have waited for for long on a shared connection. From the
// next look at Redis' commands on they are treated as commands that may wait.
func (s *Server) findBlocking(long []*Session) {
	for _, c := range long {
		name := c.activity.module.Load()
		if name == nil || !s.facts.blocking.add(*name) {
			continue
		}
		s.log.Warn("a module's command has not been answered for a second: from now on each call has a connection to itself; --blocking-commands names it from the start",
			"command", *name)
		s.learnAgain()
	}
}

// waitsFor is for how long a command that may wait does at most; 0: for ever, or nobody knows.
func waitsFor(c *commandtable.Command, args [][]byte) time.Duration {
	at, unit := blockTimeout(c, args)
	switch c.Name {
	case "wait":
		at, unit = 2, time.Millisecond
	case "waitaof":
		at, unit = 3, time.Millisecond
	}
	if at == 0 || at >= len(args) {
		return 0
	}
	n, err := strconv.ParseFloat(string(args[at]), 64)
	if err != nil || n < 0 || n > 1e9 {
		return 0
	}
	return time.Duration(n * float64(unit))
}
