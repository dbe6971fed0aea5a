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
// long as it goes on, its logins wait one behind the other before Redis is asked. A right password waits no longer than
// a wrong one, and none longer than mostLoginWait, so that nobody can keep others from logging in.

const (
	freeGuesses   = 10 // an address may send so many wrong passwords at once, and one a second
	guessTime     = 200 * time.Millisecond
	mostLoginWait = 10 * time.Second
	mostGuesses   = 4096 // addresses that are remembered: those that sent a wrong password last
)

// guesses are the wrong passwords of the last seconds.
type guesses struct {
	mu        sync.Mutex // a leaf
	byAddress *simplelru.LRU[string, guesser]
}

// guesser is an address that has sent wrong passwords.
type guesser struct {
	free  *rate.Limiter // the wrong passwords that slow down nobody
	turns *rate.Limiter // the logins of the address, while it has no free ones
}

func newGuesses() *guesses {
	byAddress, _ := simplelru.NewLRU[string, guesser](mostGuesses, nil) // fails for sizes below 1 only
	return &guesses{byAddress: byAddress}
}

// wrong notes that a wrong password came from an address.
func (g *guesses) wrong(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from, known := g.byAddress.Get(address)
	if !known {
		from = guesser{free: rate.NewLimiter(1, freeGuesses), turns: rate.NewLimiter(rate.Every(guessTime), 1)}
		g.byAddress.Add(address, from)
	}
	from.free.Allow()
}

// turnOf takes the next turn of an address for a login, and returns how long that one waits.
func (g *guesses) turnOf(address string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	from, known := g.byAddress.Peek(address)
	if !known || from.free.Tokens() >= 1 {
		return 0
	}
	turn := from.turns.Reserve()
	if turn.Delay() > mostLoginWait {
		turn.Cancel()
		return mostLoginWait
	}
	return turn.Delay()
}

// askPassword asks Redis whether user may log in with password. It takes longer where many wrong ones come from.
func (a *access) askPassword(user, password string) error {
	ctx := a.client.Context()
	if wait := a.srv.access.guesses.turnOf(networkOf(a.client.Peer.Addr)); wait > 0 {
		retry.Sleep(ctx, wait, nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backend.QuestionTime, upstream.ErrTimeout)
	defer cancel()
	err := elsewhere(func() error {
		return a.srv.up.backend.Authenticate(ctx, hostOf(a.client.Peer.Addr), user, password)
	})
	if client.PasswordRefused(err) {
		a.srv.access.guesses.wrong(networkOf(a.client.Peer.Addr))
		telemetry.LoginsFailed.Add(1)
		a.srv.log.Warn("a login failed: wrong password, or no such user", "client", a.client.Peer.Addr)
		e := eventOf(events.Login, a.client, err.Error())
		e.User = user
		a.srv.o.Events.Add(e)
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
