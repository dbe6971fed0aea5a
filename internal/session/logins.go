package session

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Wrong passwords are counted and logged, and slow down the address that they come from: once it has sent a few, and as
// long as it goes on, each of its logins waits before Redis is asked. A right password waits no longer than a wrong
// one, so that nobody can keep others from logging in.

const (
	freeGuesses = 10 // an address may send so many wrong passwords at once, and one a second
	guessTime   = 200 * time.Millisecond
	mostGuesses = 4096 // addresses that are remembered: those that sent a wrong password last
)

// guesses are the wrong passwords of the last seconds.
type guesses struct {
	mu        sync.Mutex // a leaf
	byAddress *simplelru.LRU[string, *rate.Limiter]
}

func newGuesses() *guesses {
	byAddress, _ := simplelru.NewLRU[string, *rate.Limiter](mostGuesses, nil) // fails for sizes below 1 only
	return &guesses{byAddress: byAddress}
}

// wrong notes that a wrong password came from an address.
func (g *guesses) wrong(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	free, known := g.byAddress.Get(address)
	if !known {
		free = rate.NewLimiter(1, freeGuesses)
		g.byAddress.Add(address, free)
	}
	free.Allow()
}

// wait is how long the next login from an address waits.
func (g *guesses) wait(address string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if free, known := g.byAddress.Peek(address); known && free.Tokens() < 1 {
		return guessTime
	}
	return 0
}

// askPassword asks Redis whether user may log in with password. It takes longer where many wrong ones come from.
func (s *Session) askPassword(user, password string) error {
	ctx := s.client.Context()
	if wait := s.srv.access.guesses.wait(networkOf(s.client.Peer.Addr)); wait > 0 {
		retry.Sleep(ctx, wait, nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backend.QuestionTime, upstream.ErrTimeout)
	defer cancel()
	err := elsewhere(func() error {
		return s.srv.up.backend.Authenticate(ctx, hostOf(s.client.Peer.Addr), user, password)
	})
	if client.PasswordRefused(err) {
		s.srv.access.guesses.wrong(networkOf(s.client.Peer.Addr))
		telemetry.LoginsFailed.Add(1)
		s.srv.log.Warn("a login failed: wrong password, or no such user", "client", s.client.Peer.Addr)
		e := eventOf(events.Login, s.client, err.Error())
		e.User = user
		s.srv.o.Events.Add(e)
	}
	return err
}

// elsewhere runs a question that goes deep on a goroutine of its own, and waits for its end: a client that idles
// afterwards would keep the stack, as large as the question once made it.
func elsewhere(ask func() error) error {
	answer := make(chan error, 1)
	go answerTo(answer, ask)
	return <-answer
}

// answerTo sends a question's outcome.
func answerTo(answer chan<- error, ask func() error) { answer <- ask() }
