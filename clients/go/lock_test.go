package lockproxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/goredis"
	"github.com/lockproxy/lockproxy/clients/go/rueidislock"
)

// server is a program that can be killed and started again. LOCKPROXY names lockproxy's.
type server struct {
	t     *testing.T
	words []string
	port  int
	cmd   *exec.Cmd
}

func start(t *testing.T, port int, words ...string) *server {
	t.Helper()
	s := &server{t: t, words: words, port: port}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.words[0], s.words[1:]...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: addr(s.port)})
	defer c.Close()
	for end := time.Now().Add(30 * time.Second); c.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s does not answer", s.words[0])
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func addr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// place is a Redis with a proxy before it, and the program's client, whose pool is smaller than the waiters.
type place struct {
	redis, proxy *server
	r            *redis.Client
	locks        map[string]*lockproxy.Locks
}

func newPlace(t *testing.T) *place {
	t.Helper()
	program := os.Getenv("LOCKPROXY")
	if program == "" {
		t.Skip("LOCKPROXY names no lockproxy")
	}
	at, front := freePort(t), freePort(t)
	p := &place{
		redis: start(t, at, "redis-server", "--port", strconv.Itoa(at), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
			"--appendfsync", "always", "--dir", t.TempDir()),
	}
	p.proxy = start(t, front, program, "--listen", addr(front), "--upstream", "redis://"+addr(at))
	p.r = redis.NewClient(&redis.Options{Addr: addr(front), PoolSize: 10})
	t.Cleanup(func() { p.r.Close() })
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr(front)}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p.locks = map[string]*lockproxy.Locks{"goredis": goredis.Locks(p.r.Options()), "rueidis": rueidislock.Locks(c)}
	return p
}

// with takes the locks of one library, of one kind.
type with struct {
	locks   *lockproxy.Locks
	watched bool
}

// hold is With of a lock of that kind.
func (w with) hold(ctx context.Context, name string, work func(context.Context, lockproxy.Hold) error, how ...lockproxy.Option) error {
	if w.watched {
		how = append(how, lockproxy.Watched())
	}
	return w.locks.With(ctx, name, work, how...)
}

// each runs a test with each library, and with both kinds of lock.
func (p *place) each(t *testing.T, test func(t *testing.T, w with)) {
	for name, l := range p.locks {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, watched %v", name, watched), func(t *testing.T) {
				test(t, with{l, watched})
			})
		}
	}
}

// goes is WaitGroup.Go of Go 1.25.
func goes(all *sync.WaitGroup, work func()) {
	all.Add(1)
	go func() {
		defer all.Done()
		work()
	}()
}

func nothing(context.Context, lockproxy.Hold) error { return nil }

func TestMoreWaitersThanConnections(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, w with) {
		p.r.Set(ctx, "n", 0, 0)
		var all sync.WaitGroup
		for range 60 {
			goes(&all, func() {
				err := w.hold(ctx, "pool", func(ctx context.Context, _ lockproxy.Hold) error {
					n, err := p.r.Get(ctx, "n").Int()
					time.Sleep(5 * time.Millisecond)
					return errors.Join(err, p.r.Set(ctx, "n", n+1, 0).Err())
				}, lockproxy.Wait(time.Minute))
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n, err := p.r.Get(ctx, "n").Int(); n != 60 || err != nil {
			t.Errorf("%d of 60 have counted: %v", n, err)
		}
	})
}

// Wait(0) asks once, and without Wait With waits for as long as it takes.
func TestWait(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, w with) {
		var later sync.WaitGroup
		err := w.hold(ctx, "busy", func(ctx context.Context, held lockproxy.Hold) error {
			if !w.watched && !regexp.MustCompile(`^.+:\d+:[0-9a-f-]{36}$`).MatchString(held.Owner) {
				t.Errorf("the owner is %q", held.Owner)
			}
			goes(&later, func() {
				if err := w.hold(context.WithoutCancel(ctx), "busy", nothing, lockproxy.Lease(time.Second)); err != nil {
					t.Errorf("without Wait: %v", err)
				}
			})
			for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
				began := time.Now()
				err := w.hold(ctx, "busy", nothing, lockproxy.Wait(wait))
				if !errors.Is(err, lockproxy.ErrNotAcquired) || time.Since(began) < wait {
					t.Errorf("waiting for %v: %v after %v", wait, err, time.Since(began))
				}
			}
			time.Sleep(3 * time.Second) // several of the questions that a wait consists of
			return nil
		})
		if later.Wait(); err != nil {
			t.Error(err)
		}
		if err := w.hold(ctx, "busy", nothing, lockproxy.Wait(-1)); err == nil {
			t.Error("a wait below 0 was taken")
		}
	})
}

// Three of four have a place. The fourth gets that of one that gives it back, or whose connection is closed.
func TestLimit(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, w with) {
		lock := func(wait time.Duration, how ...lockproxy.Option) (*lockproxy.Held, error) {
			if w.watched {
				how = append(how, lockproxy.Watched())
			}
			return w.locks.Lock(ctx, "limit", append(how, lockproxy.Limit(3), lockproxy.Wait(wait))...)
		}
		var held []*lockproxy.Held
		for range 3 {
			h, err := lock(0)
			if err != nil || h.Token != 0 {
				t.Fatal(h, err)
			}
			held = append(held, h)
		}
		if _, err := lock(0); !errors.Is(err, lockproxy.ErrNotAcquired) {
			t.Errorf("the fourth of three: %v", err)
		}
		got := make(chan *lockproxy.Held, 1)
		go func() {
			h, err := lock(time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if strings.Contains(fmt.Sprint(p.r.Do(ctx, "LOCKLIST", "MATCH", "limit").Val()), "waiting") {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the fourth does not wait")
			}
		}
		if err := held[0].Unlock(); err != nil {
			t.Error(err)
		}
		held[0] = <-got
		if w.watched {
			held[1].Leave() // its connection is closed, without UNLOCK
		}
		if err := held[1].Unlock(); err != nil {
			t.Error(err)
		}
		var err error
		if held[1], err = lock(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		for _, h := range held {
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if p.r.Exists(ctx, "limit").Val() != 0 {
			t.Error("nobody has a place, and the key is there")
		}
		for _, how := range []lockproxy.Option{lockproxy.Limit(0), lockproxy.Fair()} {
			if _, err := w.locks.Lock(ctx, "limit", lockproxy.Limit(3), how); err == nil {
				t.Error("it was taken with a limit of 0, or fairly")
			}
		}
	})
}

// A wait that is long beside the lease leaves two thirds of the lease at the grant.
func TestWaitLongerThanTheLease(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "long " + name
			entered := make(chan struct{})
			var holder sync.WaitGroup
			goes(&holder, func() {
				_ = l.With(ctx, key, func(context.Context, lockproxy.Hold) error {
					close(entered)
					time.Sleep(5 * time.Second)
					return nil
				})
			})
			<-entered
			err := l.With(ctx, key, func(ctx context.Context, _ lockproxy.Hold) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(5 * time.Second):
					return nil
				}
			}, lockproxy.Lease(4*time.Second))
			if holder.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller that gives up waits for no reply, and what is granted to it later is given back.
func TestCancelledWait(t *testing.T) {
	p := newPlace(t)
	p.each(t, func(t *testing.T, w with) {
		ctx, cancel := context.WithCancelCause(context.Background())
		mine := errors.New("mine")
		err := w.hold(context.Background(), "cancelled", func(context.Context, lockproxy.Hold) error {
			time.AfterFunc(300*time.Millisecond, func() { cancel(mine) })
			if err := w.hold(ctx, "cancelled", nothing); !errors.Is(err, mine) {
				t.Errorf("the cancelled wait: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := w.hold(context.Background(), "cancelled", nothing, lockproxy.Wait(10*time.Second)); err != nil {
			t.Error(err)
		}
	})
}

// A LOCK whose reply was lost may have taken the lock. It is given back when With has no more to ask.
func TestUnheardGrant(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	far := cut(t, p.proxy.port)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{far}, DisableCache: true, ForceSingleClient: true, DisableRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	locks := map[string]*lockproxy.Locks{"goredis": goredis.Locks(&redis.Options{Addr: far}), "rueidis": rueidislock.Locks(c)}
	for name, l := range locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "unheard by "+name, nothing, lockproxy.Wait(0))
			if err == nil || errors.Is(err, lockproxy.ErrNotAcquired) {
				t.Errorf("a lock without a reply: %v", err)
			}
			for end := time.Now().Add(10 * time.Second); p.r.Exists(ctx, "unheard by "+name).Val() != 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nobody has the lock, and it is held")
				}
			}
		})
	}
}

// cut is the address of what passes bytes on, and closes a connection at the reply to a LOCK.
func cut(t *testing.T, to int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				up, err := net.Dial("tcp", addr(to))
				if err != nil {
					return
				}
				defer up.Close()
				var asked atomic.Bool
				go func() {
					defer client.Close()
					for data := make([]byte, 4096); ; {
						n, err := up.Read(data)
						if err != nil || asked.Load() {
							return
						}
						_, _ = client.Write(data[:n])
					}
				}()
				for data := make([]byte, 4096); ; {
					n, err := client.Read(data)
					if err != nil {
						return
					}
					if bytes.Contains(data[:n], []byte("\r\nLOCK\r\n")) {
						asked.Store(true)
					}
					_, _ = up.Write(data[:n])
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestLockAndUnlock(t *testing.T) {
	p := newPlace(t)
	p.each(t, func(t *testing.T, w with) {
		how := []lockproxy.Option{lockproxy.Wait(0), lockproxy.Lease(2 * time.Second)}
		if w.watched {
			how = append(how, lockproxy.Watched())
		}
		lock := func() *lockproxy.Held {
			t.Helper()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel() // which ends the wait alone
			held, err := w.locks.Lock(ctx, "object", how...)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		held := lock()
		time.Sleep(3 * time.Second)
		if held.Context().Err() != nil || held.Token == 0 {
			t.Errorf("it was not renewed: %v", context.Cause(held.Context()))
		}
		if _, err := w.locks.Lock(context.Background(), "object", how...); !errors.Is(err, lockproxy.ErrNotAcquired) {
			t.Errorf("two have it: %v", err)
		}
		for range 2 {
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
		}
		held = lock()
		_ = p.r.Do(context.Background(), "UNLOCK", "object", "FORCE").Err()
		if err := held.Unlock(); !errors.Is(err, lockproxy.ErrLost) {
			t.Errorf("freed by force: %v", err)
		}
		held = lock()
		held.Leave()
		if err := held.Unlock(); err != nil {
			t.Error(err)
		}
		if !w.watched { // a connection's lock ends with its connection
			if _, err := w.locks.Lock(context.Background(), "object", how...); !errors.Is(err, lockproxy.ErrNotAcquired) {
				t.Errorf("it was not left: %v", err)
			}
		}
		if err := w.hold(context.Background(), "object", nothing, lockproxy.Wait(10*time.Second)); err != nil {
			t.Error(err)
		}
	})
}

func TestNoLockproxy(t *testing.T) {
	p := newPlace(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr(p.redis.port)}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bare := goredis.Locks(&redis.Options{Addr: addr(p.redis.port)})
	for _, l := range []*lockproxy.Locks{bare, rueidislock.Locks(c)} {
		if err := l.With(context.Background(), "bare", nothing); err == nil || !strings.Contains(err.Error(), "this is no lockproxy") {
			t.Errorf("a Redis without the verbs: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// logged is what go-redis logs.
type logged struct{ lines chan string }

func (l logged) Printf(_ context.Context, format string, v ...interface{}) {
	select {
	case l.lines <- fmt.Sprintf(format, v...):
	default:
	}
}

// The options of a client that go-redis has filled in are not used for another.
func TestNothingIsLogged(t *testing.T) {
	p, l := newPlace(t), logged{make(chan string, 16)}
	redis.SetLogger(l)
	locks := goredis.Locks(p.r.Options())
	defer locks.Close()
	if err := locks.With(context.Background(), "quiet", nothing); err != nil {
		t.Error(err)
	}
	select {
	case line := <-l.lines:
		t.Errorf("go-redis logs: %s", line)
	default:
	}
}

func TestLost(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, w with) {
		err := w.hold(ctx, "forced", func(ctx context.Context, _ lockproxy.Hold) error {
			if err := p.r.Do(context.WithoutCancel(ctx), "UNLOCK", "forced", "FORCE").Err(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil
		}, lockproxy.Lease(time.Second))
		if !errors.Is(err, lockproxy.ErrLost) {
			t.Errorf("a lock that was freed by force: %v", err)
		}
		err = w.hold(ctx, "forced", func(ctx context.Context, _ lockproxy.Hold) error {
			return p.r.Do(ctx, "UNLOCK", "forced", "FORCE").Err()
		})
		if !errors.Is(err, lockproxy.ErrLost) {
			t.Errorf("a lock whose loss UNLOCK tells: %v", err)
		}
		mine := errors.New("mine")
		err = w.hold(ctx, "forced", func(ctx context.Context, _ lockproxy.Hold) error {
			_ = p.r.Do(ctx, "UNLOCK", "forced", "FORCE").Err()
			return mine
		})
		if !errors.Is(err, mine) {
			t.Errorf("an error of the program's own came back as %v", err)
		}
	})
}

// A lock is renewed for as long as the work takes, and given back when that panics.
func TestLongWorkAndPanic(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, w with) {
		func() {
			defer func() { _ = recover() }()
			_ = w.hold(ctx, "job", func(ctx context.Context, _ lockproxy.Hold) error {
				time.Sleep(3 * time.Second)
				if err := w.locks.With(ctx, "job", nothing, lockproxy.Wait(0)); !errors.Is(err, lockproxy.ErrNotAcquired) {
					t.Errorf("two have it: %v", err)
				}
				panic("mine")
			}, lockproxy.Lease(time.Second))
		}()
		if err := w.locks.With(ctx, "job", nothing, lockproxy.Wait(500*time.Millisecond)); err != nil {
			t.Error(err)
		}
	})
}

// Errors to renewals while Redis is away do not end a hold.
func TestRedisIsKilledAndComesBack(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "outage", func(ctx context.Context, _ lockproxy.Hold) error {
				p.redis.kill()
				time.Sleep(3 * time.Second)
				p.redis.start()
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(4 * time.Second):
					return nil
				}
			}, lockproxy.Lease(6*time.Second))
			if err != nil {
				t.Error(err)
			}
			if err := l.With(ctx, "outage", nothing, lockproxy.Wait(3*time.Second)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProxyIsKilled(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "restart", func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				p.proxy.start()
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(6 * time.Second):
					return nil
				}
			}, lockproxy.Lease(5*time.Second))
			if err != nil {
				t.Errorf("with a proxy that was there again within the lease: %v", err)
			}
			err = l.With(ctx, "dead", func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				<-ctx.Done()
				p.proxy.start()
				return nil
			}, lockproxy.Lease(time.Second))
			if !errors.Is(err, lockproxy.ErrLost) || !strings.Contains(err.Error(), "in time") {
				t.Errorf("with a proxy that was away for longer than the lease: %v", err)
			}
			err = l.With(ctx, "watched by "+name, func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				p.proxy.start()
				<-ctx.Done()
				return nil
			}, lockproxy.Watched())
			if !errors.Is(err, lockproxy.ErrLost) {
				t.Errorf("a connection's lock whose proxy was killed: %v", err)
			}
		})
	}
}

// A write whose connection broke may still be on its way: its lock is left to its lease.
func TestBrokenWork(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "write", func(context.Context, lockproxy.Hold) error {
				return fmt.Errorf("no answer: %w", net.ErrClosed)
			}, lockproxy.Lease(2*time.Second))
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if err := l.With(ctx, "write", nothing, lockproxy.Wait(0)); !errors.Is(err, lockproxy.ErrNotAcquired) {
				t.Errorf("the lock was given back: %v", err)
			}
			if err := l.With(ctx, "write", nothing, lockproxy.Wait(10*time.Second)); err != nil {
				t.Error(err)
			}
		})
	}
}
