// Package embedded is a Redis-like store in this process, for trying lockproxy out and for tests of programs that use
// it: miniredis, a clock for it, and what miniredis has not and clients ask for.
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// clockRest is how many times as long as a tick of the store's clock takes the clock rests until the next.
const clockRest = 9

// Store is one store. It is empty at the start, and its data is gone with it.
type Store struct {
	redis   *miniredis.Miniredis
	began   time.Time
	next    atomic.Int64 // ns after began from which a command moves the store's clock
	scripts sync.Map     // those of clients that need what miniredis' Lua has not: a script, by the SHA of the client's
	inner   sync.Map     // the peers of through

	mu   sync.Mutex
	last time.Time // what the clock was moved to; under mu
}

// Start starts a store on a loopback port of its own. Its clock does not run by itself: commands move it, so that a
// store that nobody uses costs nothing.
func Start(log *slog.Logger) (*Store, error) {
	began := time.Now()
	s := &Store{redis: miniredis.NewMiniRedis(), began: began, last: began.Round(0)}
	if err := s.redis.Start(); err != nil {
		return nil, err
	}
	s.redis.SetTime(s.last)
	s.redis.Server().SetPreHook(s.before)
	log.Warn("no --upstream given: this is the EMBEDDED STORE, for trying lockproxy out and for tests. It forgets " +
		"everything when lockproxy ends, knows only part of Redis' commands, and no other lockproxy shares its locks")
	return s, nil
}

// before runs before each command, those of scripts included. It returns true if it has answered.
func (s *Store) before(p *server.Peer, cmd string, args ...string) bool {
	if int64(time.Since(s.began)) >= s.next.Load() {
		s.moveClock()
	}
	if _, inner := s.inner.Load(p); inner {
		return false
	}
	switch cmd {
	case "CLUSTER":
		// miniredis would say that it is a cluster, at its own address, and clients that ask, such as rueidis, would
		// go there: past the proxy and its locks.
		p.WriteError("ERR This instance has cluster support disabled")
	case "COMMAND":
		Command(p, args)
	case "INFO":
		s.info(p, args)
	case "TIME":
		return s.timeInScript(p)
	case "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO":
		s.eval(p, cmd, args)
	case "SCRIPT":
		return s.scriptCommand(p, args)
	default:
		return s.reshape(p, cmd, args)
	}
	return true
}

// through has miniredis run a command of p's, and returns the reply, which p is then told in another form. Within MULTI
// the command is only queued, and EXEC has miniredis' own reply.
func (s *Store) through(p *server.Peer, words []string) []byte {
	var out bytes.Buffer
	inner := server.NewPeer(bufio.NewWriter(&out))
	inner.Ctx, inner.Resp3 = p.Ctx, p.Resp3
	s.inner.Store(inner, nil)
	defer s.inner.Delete(inner)
	done, watched := make(chan struct{}), make(chan struct{})
	go closeWith(p, inner, done, watched)
	s.redis.Server().Dispatch(inner, words)
	close(done)
	<-watched
	p.Ctx = inner.Ctx
	inner.Flush()
	return out.Bytes()
}

// goneLook is how often through looks whether its client has gone.
const goneLook = 100 * time.Millisecond

// closeWith closes inner when p is closed, which ends its wait, until done; then it closes watched. through starts it,
// and waits for it.
func closeWith(p, inner *server.Peer, done <-chan struct{}, watched chan<- struct{}) {
	defer close(watched)
	for retry.Sleep(context.Background(), goneLook, done) {
		if p.Closed() {
			inner.Close()
		}
	}
}

// timeInScript answers a script's TIME with the time that has passed meanwhile, so that a script that waits for a time
// ends. False: the store is free, and its clock has just been moved.
func (s *Store) timeInScript(p *server.Peer) bool {
	if !s.taken() {
		return false
	}
	now := time.Now()
	p.WriteStrings([]string{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)})
	return true
}

// taken says that somebody has the store, as a script has whose commands come.
func (s *Store) taken() bool {
	free := s.redis.TryLock()
	if free {
		s.redis.Unlock()
	}
	return !free
}

// moveClock lets the time pass in the store that has passed. The store looks at all keys for it, and nobody else is
// served meanwhile: with many keys it is done less often. What has passed counts for all keys, also for one that was
// set since the last tick: it ends early by up to the clock's rest, some 10 µs with ten keys and 20 ms with ten
// thousand. While a script has the store, its own commands come here, too: for them the time stands still, as it does
// in Redis. Whoever else finds the store taken is behind a command that has moved the clock.
func (s *Store) moveClock() {
	if s.taken() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if int64(now.Sub(s.began)) < s.next.Load() {
		return
	}
	// By the clock on the wall, in both, so that PEXPIRETIME says what PEXPIREAT has set: miniredis keeps what is left.
	wall := now.Round(0)
	s.redis.FastForward(wall.Sub(s.last))
	s.redis.SetTime(wall)
	s.last = wall
	s.next.Store(int64(now.Sub(s.began) + clockRest*time.Since(now)))
}

// Addr is where it listens, host:port.
func (s *Store) Addr() string { return s.redis.Addr() }

// Close ends the store, and all connections to it.
func (s *Store) Close() { s.redis.Close() }
