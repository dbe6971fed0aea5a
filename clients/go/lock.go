// Package lockproxy holds distributed locks of lockproxy's for Go programs: With takes a lock, runs a function, and gives the lock back.
// They are Redisson's locks: a Java service with Redisson and the program exclude each other. Packages goredis and rueidislock make
// Locks from the client of a library.
package lockproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrNotAcquired says that somebody else had the lock for as long as the caller was willing to wait.
var ErrNotAcquired = errors.New("lockproxy: not acquired in time")

// ErrLost says that the lock was lost while it was held: somebody else may have it.
var ErrLost = errors.New("lockproxy: the lock was lost")

// Conn is how one critical section asks.
type Conn interface {
	// Do asks one command. nil is a null reply. An error for which IsReply is true is Redis' own; after any other one the outcome is unknown.
	Do(ctx context.Context, words ...any) (any, error)
	// Close gives back what the section had.
	Close()
}

// Locks are the locks that a program reaches by one client of its library.
type Locks struct {
	// Dial gives a critical section its Conn. That uses no connections of the pool that the program's own commands need: waiters must not
	// use up those that a holder needs. answer is how long Redis may take for a reply, at most; alone: it is one connection, of this section only.
	Dial func(answer time.Duration, alone bool) (Conn, error)
	// IsReply says that an error is a reply of Redis'.
	IsReply func(error) bool
}

// Options are how a lock is taken.
type Options struct {
	Wait  time.Duration // for somebody else's; 0: ask once; Forever
	Lease time.Duration // after which the lock is free if the program has died, at least a second; 0: 30 s. It is renewed each third of it
	Fair  bool          // first come, first served, Redisson's fair waiters included
	// Watched makes the lock the connection's, without a lease: the proxy renews it, it is free at once when the program dies, and lost
	// when the connection breaks.
	Watched bool
}

// Forever is an Options.Wait that does not end.
const Forever = time.Duration(-1)

// Hold is a lock in its holder's hands.
type Hold struct {
	Token int64  // the fencing token, which rises with each holder
	Owner string // host:process:uuid, as LOCKINFO shows it; "" of a watched lock, whose owner the proxy names
}

// With holds the lock while work runs, and returns its error. work's context ends when the lock is lost; its cause is then an ErrLost, which
// With returns, too, unless work has an error of its own. ErrNotAcquired: somebody else had the lock for Options.Wait.
//
// If work's error is that of a broken connection, a write of work's may still be on its way: the lock is not given back then, and ends with
// its lease.
func (l *Locks) With(ctx context.Context, name string, o Options, work func(ctx context.Context, held Hold) error) error {
	s, err := l.begin(name, o)
	if err != nil {
		return err
	}
	held, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	inside, lose := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(time.Until(s.until), func() { lose(fmt.Errorf("%w: %s was not renewed in time", ErrLost, name)) })
	if s.Watched {
		expiry.Stop()
	}
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		s.renew(inside, expiry, lose)
	}()
	defer s.conn.Close()
	release := true
	defer func() {
		lose(nil)
		<-renewed
		expiry.Stop()
		if release { // also when work panics
			s.release()
		}
	}()
	err = work(inside, held)
	release = !broken(err)
	if lost := context.Cause(inside); err == nil && errors.Is(lost, ErrLost) {
		return lost
	}
	return err
}

// section is one critical section.
type section struct {
	*Locks
	Options
	name, owner string
	conn        Conn
	until       time.Time // the lease is surely Redis' until then
}

func (l *Locks) begin(name string, o Options) (*section, error) {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Lease < time.Second {
		return nil, errors.New("lockproxy: a lease below a second cannot be renewed in time")
	}
	s := &section{Locks: l, Options: o, name: name}
	if o.Watched {
		s.Lease = watchedLease
	} else {
		host, _ := os.Hostname()
		s.owner = host + ":" + strconv.Itoa(os.Getpid()) + ":" + uuid.NewString()
	}
	var err error
	s.conn, err = l.Dial(s.third(), o.Watched)
	return s, err
}

// watchedLease is three times as long as the time between questions about a lock that the proxy watches.
const watchedLease = 15 * time.Second

// third is a third of the lease. No question takes longer: so two thirds are left at the grant, however long the wait was.
func (s *section) third() time.Duration { return s.Lease / 3 }

// words are those of a question about the lock.
func (s *section) words(verb string, leased bool) []any {
	words := []any{verb, s.name}
	if !s.Watched {
		words = append(words, "OWNER", s.owner)
	}
	if leased && !s.Watched {
		words = append(words, "PX", s.Lease.Milliseconds())
	}
	return words
}

// acquire takes the lock. What is granted after ctx has ended is given back.
func (s *section) acquire(ctx context.Context) (Hold, error) {
	type grant struct {
		held Hold
		err  error
	}
	got := make(chan grant, 1)
	asking, stop := context.WithCancel(context.WithoutCancel(ctx)) // a question that is under way is not cut off: its reply says whether it was granted
	go func() {
		held, err := s.ask(asking)
		got <- grant{held, err}
	}()
	defer stop()
	select {
	case g := <-got:
		if g.err != nil {
			s.conn.Close()
		}
		return g.held, g.err
	case <-ctx.Done():
	}
	stop()
	go func() {
		if g := <-got; g.err == nil {
			s.release()
		}
		s.conn.Close()
	}()
	return Hold{}, context.Cause(ctx)
}

// ask asks for the lock again and again, until it is granted, the wait is over, or ctx has ended.
func (s *section) ask(ctx context.Context) (Hold, error) {
	verb := "LOCK"
	if s.Fair {
		verb = "FAIRLOCK"
	}
	began, trouble := time.Now(), time.Time{}
	for {
		sent := time.Now()
		block, last := s.third()*3/4, false
		if left := s.Wait - sent.Sub(began); s.Wait != Forever && left <= block {
			block, last = left, true
		}
		words := append(s.words(verb, true), "FENCE")
		if s.Watched {
			words = append(words, "SELF")
		}
		if block > 0 {
			words = append(words, "BLOCK", (block + time.Millisecond - 1).Milliseconds())
		}
		token, err := s.conn.Do(context.WithoutCancel(ctx), words...)
		switch n, granted := token.(int64); {
		case err == nil && granted:
			s.until = sent.Add(s.Lease) // from before it was sent: never later than Redis has it
			return Hold{n, s.owner}, nil
		case err != nil && s.IsReply(err):
			return Hold{}, fmt.Errorf("lock %s: %w", s.name, err)
		case err != nil:
			// An idle connection may have been closed on the way, or the proxy is away: to ask again joins what was granted.
			again := !trouble.IsZero()
			if !again {
				trouble = sent
			}
			if over := s.Wait != Forever && time.Since(began) >= s.Wait || time.Since(trouble) >= s.third(); again && over || ctx.Err() != nil {
				return Hold{}, fmt.Errorf("lock %s: %w", s.name, err)
			}
			time.Sleep(s.third() / 100)
			continue
		case last:
			return Hold{}, fmt.Errorf("%w: %s", ErrNotAcquired, s.name)
		}
		if trouble = (time.Time{}); ctx.Err() != nil {
			return Hold{}, ctx.Err()
		}
	}
}

// renew renews the lease until ctx ends, or the lock is lost.
func (s *section) renew(ctx context.Context, expiry *time.Timer, lose context.CancelCauseFunc) {
	for pause := s.third(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		_, err := s.conn.Do(context.WithoutCancel(ctx), s.words("RENEW", true)...)
		switch pause = s.third() / 4; {
		case err == nil:
			pause = s.third()
			if !s.Watched && expiry.Stop() { // else it was lost, and stays so
				expiry.Reset(time.Until(sent.Add(s.Lease)))
			}
		case s.gone(err), s.Watched && !s.IsReply(err):
			lose(fmt.Errorf("%w: %w", ErrLost, err))
		}
	}
}

// gone says that Redis has answered that the lock is not held. No other error ends a hold.
func (s *section) gone(err error) bool {
	return s.IsReply(err) && (strings.HasPrefix(err.Error(), "NOTHELD") || strings.HasPrefix(err.Error(), "LOCKLOST"))
}

// unlocks is how often UNLOCK is asked while Redis or the proxy is away. No two sections have one owner, so it may be said again.
const unlocks = 4

// release gives the lock back. If that cannot be done it ends with its lease.
func (s *section) release() {
	for range unlocks {
		_, err := s.conn.Do(context.Background(), s.words("UNLOCK", false)...)
		if err == nil || s.gone(err) || s.Watched && !s.IsReply(err) {
			return
		}
		time.Sleep(s.third() / 20)
	}
}

// broken says that a command of work's may still be on its way.
func broken(err error) bool {
	var network net.Error
	return errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
