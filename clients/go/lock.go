// Package lockproxy holds distributed locks of lockproxy's for Go programs: With takes a lock, runs a function, and
// gives the lock back. They are Redisson's locks: a Java service with Redisson and the program exclude each other.
// Packages goredis and rueidislock make Locks from the client of a library.
package lockproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ErrNotAcquired says that somebody else had the lock for as long as the caller was willing to wait.
var ErrNotAcquired = errors.New("lockproxy: not acquired in time")

// ErrLost says that the lock was lost while it was held: somebody else may have it.
var ErrLost = errors.New("lockproxy: the lock was lost")

// Conn is how one critical section asks.
type Conn interface {
	// Do asks one command. nil is a null reply. An error for which IsReply is true is Redis' own; after any other one
	// the outcome is unknown.
	Do(ctx context.Context, words ...any) (any, error)
	// Close gives back what the section had. drop: a connection of this section only is used by nobody else then.
	Close(drop bool)
}

// Locks are the locks that a program reaches by one client of its library.
type Locks struct {
	// Dial gives a critical section its Conn. That uses no connections of the pool that the program's own commands
	// need: waiters must not use up those that a holder needs. answer is how long Redis may take for a reply, at most;
	// alone: it is one connection, of this section only.
	Dial func(answer time.Duration, alone bool) (Conn, error)
	// IsReply says that an error is a reply of Redis'.
	IsReply func(error) bool
	// Close closes the connections that are none of the program's own client's.
	Close func() error
}

// Option is how a lock is taken.
type Option func(*options)

type options struct {
	wait    time.Duration
	lease   time.Duration
	fair    bool
	watched bool
	limited bool
	limit   int // of a lock that is limited
}

// forever is the wait of a lock that is taken without Wait.
const forever = time.Duration(math.MaxInt64)

// Wait bounds the wait for somebody else's lock: 0 asks once. Without it With waits for ever, or until its context ends.
func Wait(d time.Duration) Option { return func(o *options) { o.wait = d } }

// Lease sets after how long the lock is free if the program has died: 30 s without it, a second at least. Each third of
// it is a renewal.
func Lease(d time.Duration) Option { return func(o *options) { o.lease = d } }

// Fair takes the lock in the order in which it was asked for, Redisson's fair waiters included.
func Fair() Option { return func(o *options) { o.fair = true } }

// Limit lets n hold the lock at once, one at least. It does not go with Fair.
func Limit(n int) Option { return func(o *options) { o.limited, o.limit = true, n } }

// Watched makes the lock the connection's, without a lease: the proxy renews it, it is free at once when the program
// dies, and lost when the connection breaks.
func Watched() Option { return func(o *options) { o.watched = true } }

// Hold names a lock in its holder's hands.
type Hold struct {
	Token int64  // the fencing token, which rises with each holder; 0 of a lock with Limit, which has none
	Owner string // host:process:uuid, as LOCKINFO shows it; "" of a watched lock, whose owner the proxy names
}

// With holds the lock while work runs, and returns its error. work's context ends when the lock is lost; its cause is
// then an ErrLost, which With returns, too, unless work has an error of its own. ErrNotAcquired: somebody else had the
// lock for as long as Wait says.
//
// If work's error is that of a broken connection, or that a deadline is over, a write of work's may still be on its
// way: the lock is not given back then, and ends with its lease.
func (l *Locks) With(
	ctx context.Context, name string, work func(ctx context.Context, held Hold) error, how ...Option,
) (err error) {
	held, err := l.Lock(ctx, name, how...)
	if err != nil {
		return err
	}
	defer func() { // also when work panics
		if broken(err) {
			held.Leave()
		}
		if lost := held.Unlock(); err == nil {
			err = lost
		}
	}()
	inside, end := context.WithCancelCause(ctx)
	defer end(nil)
	context.AfterFunc(held.Context(), func() { end(context.Cause(held.Context())) })
	return work(inside, held.Hold)
}

// Held is a lock that Lock has taken. Any goroutine may use it.
type Held struct {
	Hold
	section *section
	alive   context.Context // until the lock is lost, or given back
	lose    context.CancelCauseFunc
	expiry  *time.Timer
	renewed chan struct{}
	left    atomic.Bool
	unlock  func() error
}

// Lock takes the lock, which is renewed until Unlock. ctx ends the wait alone; what is granted after that is given
// back.
func (l *Locks) Lock(ctx context.Context, name string, how ...Option) (*Held, error) {
	o := options{wait: forever, lease: 30 * time.Second}
	for _, set := range how {
		set(&o)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s, err := l.begin(name, o)
	if err != nil {
		return nil, err
	}
	hold, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	h := &Held{Hold: hold, section: s, renewed: make(chan struct{})}
	h.alive, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	h.unlock = sync.OnceValue(h.end)
	late := fmt.Errorf("%w: %s was not renewed in time", ErrLost, name)
	h.expiry = time.AfterFunc(time.Until(s.until), func() { h.lose(late) })
	go s.keep(h.alive, h.expiry, h.lose, h.renewed)
	return h, nil
}

// Context ends when the lock is lost, with an ErrLost as its cause, or given back.
func (h *Held) Context() context.Context { return h.alive }

// Leave leaves the lock to its lease: Unlock will only end its renewals. This is for a write that has had no answer,
// and may still be on its way.
func (h *Held) Leave() { h.left.Store(true) }

// Unlock gives the lock back, once, and returns an ErrLost if it was lost.
func (h *Held) Unlock() error { return h.unlock() }

func (h *Held) end() error {
	lost := context.Cause(h.alive)
	h.lose(nil)
	<-h.renewed
	h.expiry.Stop()
	var gone error
	left := h.left.Load()
	if !left {
		gone = h.section.release(true)
	}
	h.section.conn.Close(left) // a watched lock ends with its connection
	if errors.Is(lost, ErrLost) {
		return lost
	}
	return gone
}

// section is one critical section. Its words do not change, so that each may be said again.
type section struct {
	*Locks
	name, owner           string
	lock, renew, unlock   []any // what is asked
	wait                  time.Duration
	third                 time.Duration // no question takes longer: two thirds of a lease are left at the grant
	lease                 time.Duration
	endsWithItsConnection bool
	conn                  Conn
	unheard               bool      // a LOCK has had no answer: Redis may have granted it, or may yet
	until                 time.Time // the lock is surely this section's until then, unless Redis says otherwise
}

const (
	watchedThird = 5 * time.Second            // between questions about a lock that the proxy watches
	watchedLease = 100 * 365 * 24 * time.Hour // it has none
)

// begin makes a section that has asked nothing yet.
func (l *Locks) begin(name string, o options) (*section, error) {
	switch {
	case o.lease < time.Second:
		return nil, errors.New("lockproxy: a lease below a second cannot be renewed in time")
	case o.wait < 0:
		return nil, errors.New("lockproxy: a wait is 0, which asks once, or longer")
	case o.limited && (o.fair || o.limit < 1):
		return nil, errors.New("lockproxy: a limit is one or more, and does not go with Fair")
	}
	verb := "LOCK"
	if o.fair {
		verb = "FAIRLOCK"
	}
	lock := []any{verb, name, "FENCE"}
	if o.limited {
		lock = []any{verb, name, "LIMIT", o.limit}
	}
	s := &section{Locks: l, name: name, wait: o.wait, endsWithItsConnection: o.watched}
	if o.watched {
		s.third, s.lease = watchedThird, watchedLease
		s.lock, s.renew, s.unlock = append(lock, "SELF"), []any{"RENEW", name}, []any{"UNLOCK", name}
	} else {
		s.third, s.lease = o.lease/3, o.lease
		host, _ := os.Hostname()
		s.owner = host + ":" + strconv.Itoa(os.Getpid()) + ":" + uuid.NewString()
		ms := o.lease.Milliseconds()
		s.lock = append(lock, "OWNER", s.owner, "PX", ms)
		s.renew, s.unlock = []any{"RENEW", name, "OWNER", s.owner, "PX", ms}, []any{"UNLOCK", name, "OWNER", s.owner}
	}
	var err error
	s.conn, err = l.Dial(s.third, o.watched)
	return s, err
}

// grant is what a section has asked for, or why it has not got it.
type grant struct {
	held Hold
	err  error
}

// acquire takes the lock. What is granted after ctx has ended is given back.
func (s *section) acquire(ctx context.Context) (Hold, error) {
	got := make(chan grant, 1)
	go s.askFor(ctx, got)
	select {
	case g := <-got:
		if g.err != nil {
			go s.giveBack(g)
		}
		return g.held, g.err
	case <-ctx.Done():
		go func() { s.giveBack(<-got) }()
		return Hold{}, context.Cause(ctx)
	}
}

// askFor is the goroutine that asks. A question that is under way is not cut off when ctx ends: its reply says whether
// the lock was granted.
func (s *section) askFor(ctx context.Context, got chan<- grant) {
	held, err := s.ask(ctx)
	got <- grant{held, err}
}

// giveBack is the goroutine that gives back what was granted to a wait that has ended, or may have been.
func (s *section) giveBack(last grant) {
	if granted := last.err == nil; granted || s.unheard && !s.endsWithItsConnection {
		_ = s.release(granted)
	}
	s.conn.Close(false)
}

// left is how much of the wait that began then is left.
func (s *section) left(began time.Time) time.Duration {
	if s.wait == forever {
		return forever
	}
	return s.wait - time.Since(began)
}

// ask asks for the lock again and again, until it is granted, the wait is over, or ctx has ended.
func (s *section) ask(ctx context.Context) (Hold, error) {
	began, trouble := time.Now(), false
	for answered := began; ; {
		sent, left := time.Now(), s.left(began)
		block, words := min(left, s.third*3/4), s.lock
		if block > 0 {
			words = append(slices.Clone(words), "BLOCK", (block + time.Millisecond - 1).Milliseconds())
		}
		token, err := s.conn.Do(context.WithoutCancel(ctx), words...)
		n, _ := token.(int64) // with a limit it is OK
		s.unheard = err != nil && (!s.IsReply(err) || strings.Contains(err.Error(), "the reply to this LOCK was lost"))
		switch {
		case err == nil && token != nil:
			s.until = sent.Add(s.lease) // from before it was sent: never later than Redis has it
			return Hold{n, s.owner}, nil
		case ctx.Err() != nil:
			return Hold{}, ctx.Err()
		case err == nil && block == left, err == nil && block <= 0:
			return Hold{}, fmt.Errorf("%w: %s", ErrNotAcquired, s.name)
		case err == nil:
			trouble, answered = false, time.Now()
			continue
		case s.IsReply(err) && strings.HasPrefix(strings.TrimPrefix(err.Error(), "ERR "), "unknown command"):
			return Hold{}, fmt.Errorf("lock %s: this is no lockproxy: %w", s.name, err)
		case s.IsReply(err):
			return Hold{}, fmt.Errorf("lock %s: %w", s.name, err)
		}
		// An idle connection may have been closed on the way, or the proxy is away: to ask again joins what was
		// granted.
		if trouble && min(s.third-time.Since(answered), s.left(began)) <= 0 {
			return Hold{}, fmt.Errorf("lock %s: %w", s.name, err)
		}
		trouble = true
		time.Sleep(s.third / 100)
	}
}

// keep renews the lease until ctx ends, or the lock is lost, and closes ended then.
func (s *section) keep(ctx context.Context, expiry *time.Timer, lose context.CancelCauseFunc, ended chan<- struct{}) {
	defer close(ended)
	for pause := s.third; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		_, err := s.conn.Do(context.WithoutCancel(ctx), s.renew...)
		switch pause = s.third / 4; {
		case s.gone(err):
			lose(fmt.Errorf("%w: %w", ErrLost, err))
		case err == nil:
			pause = s.third
			if expiry.Stop() { // else it was lost, and stays so
				expiry.Reset(time.Until(sent.Add(s.lease)))
			}
		}
	}
}

// gone says that err, of a question about the lock, means that it is not held. Of a lease only Redis can say so.
func (s *section) gone(err error) bool {
	switch {
	case err == nil:
		return false
	case !s.IsReply(err):
		return s.endsWithItsConnection
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	return code == "NOTHELD" || code == "LOCKLOST"
}

// unlocks is how often UNLOCK is asked while Redis or the proxy is away. No two sections have one owner, so it may be
// said again.
const unlocks = 4

// release gives the lock back, and returns an ErrLost if it was gone. If that cannot be done it ends with its lease.
// One that was not granted may have been: its LOCK had no answer, and may be carried out after the first UNLOCK, which
// comes over another connection.
func (s *section) release(granted bool) error {
	answered := true // an UNLOCK that has had no answer may have been done
	for turn := range unlocks {
		pause := s.third / 20
		switch _, err := s.conn.Do(context.Background(), s.unlock...); {
		case err == nil:
			return nil
		case !granted:
			pause = s.third / 200 << (2 * turn)
		case !s.gone(err):
			answered = answered && s.IsReply(err)
		case answered:
			return fmt.Errorf("%w: %w", ErrLost, err)
		default:
			return nil
		}
		time.Sleep(pause)
	}
	return nil
}

// broken says that a command of work's may still be on its way.
func broken(err error) bool {
	var network net.Error // that a deadline is over is one
	ends := []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed}
	return errors.As(err, &network) || slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}
