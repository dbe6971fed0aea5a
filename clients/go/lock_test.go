package lockproxy_test

import (
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

// each runs a test with each library, and with both kinds of lock.
func (p *place) each(t *testing.T, test func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options)) {
	for name, l := range p.locks {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, watched %v", name, watched), func(t *testing.T) {
				test(t, l, lockproxy.Options{Watched: watched, Lease: time.Second})
			})
		}
	}
}

func nothing(context.Context, lockproxy.Hold) error { return nil }

func TestMoreWaitersThanConnections(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options) {
		o.Wait, o.Lease = time.Minute, 0
		p.r.Set(ctx, "n", 0, 0)
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				err := l.With(ctx, "pool", o, func(ctx context.Context, _ lockproxy.Hold) error {
					n, err := p.r.Get(ctx, "n").Int()
					time.Sleep(5 * time.Millisecond)
					return errors.Join(err, p.r.Set(ctx, "n", n+1, 0).Err())
				})
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

func TestWait(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options) {
		err := l.With(ctx, "busy", o, func(ctx context.Context, held lockproxy.Hold) error {
			if !o.Watched && !regexp.MustCompile(`^.+:\d+:[0-9a-f-]{36}$`).MatchString(held.Owner) {
				t.Errorf("the owner is %q", held.Owner)
			}
			for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
				began, other := time.Now(), o
				other.Wait = wait
				if err := l.With(ctx, "busy", other, nothing); !errors.Is(err, lockproxy.ErrNotAcquired) || time.Since(began) < wait {
					t.Errorf("waiting for %v: %v after %v", wait, err, time.Since(began))
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A wait that is long beside the lease leaves two thirds of the lease at the grant.
func TestWaitLongerThanTheLease(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{})
			var holder sync.WaitGroup
			holder.Go(func() {
				_ = l.With(ctx, "long", lockproxy.Options{}, func(context.Context, lockproxy.Hold) error {
					close(entered)
					time.Sleep(3 * time.Second)
					return nil
				})
			})
			<-entered
			err := l.With(ctx, "long", lockproxy.Options{Wait: lockproxy.Forever, Lease: time.Second}, func(ctx context.Context, _ lockproxy.Hold) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(2 * time.Second):
					return nil
				}
			})
			if holder.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller that gives up waits for no reply, and what is granted to it later is given back.
func TestCancelledWait(t *testing.T) {
	p := newPlace(t)
	p.each(t, func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options) {
		o.Lease, o.Wait = 30*time.Second, lockproxy.Forever
		ctx, cancel := context.WithCancelCause(context.Background())
		mine := errors.New("mine")
		err := l.With(context.Background(), "cancelled", o, func(context.Context, lockproxy.Hold) error {
			time.AfterFunc(300*time.Millisecond, func() { cancel(mine) })
			if err := l.With(ctx, "cancelled", o, nothing); !errors.Is(err, mine) {
				t.Errorf("the cancelled wait: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		o.Wait = 10 * time.Second
		if err := l.With(context.Background(), "cancelled", o, nothing); err != nil {
			t.Error(err)
		}
	})
}

func TestLost(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	p.each(t, func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options) {
		err := l.With(ctx, "forced", o, func(ctx context.Context, _ lockproxy.Hold) error {
			if err := p.r.Do(context.WithoutCancel(ctx), "UNLOCK", "forced", "FORCE").Err(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, lockproxy.ErrLost) {
			t.Errorf("a lock that was freed by force: %v", err)
		}
		mine := errors.New("mine")
		err = l.With(ctx, "forced", o, func(ctx context.Context, _ lockproxy.Hold) error {
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
	p.each(t, func(t *testing.T, l *lockproxy.Locks, o lockproxy.Options) {
		func() {
			defer func() { _ = recover() }()
			_ = l.With(ctx, "job", o, func(ctx context.Context, _ lockproxy.Hold) error {
				time.Sleep(3 * time.Second)
				if err := l.With(ctx, "job", lockproxy.Options{}, nothing); !errors.Is(err, lockproxy.ErrNotAcquired) {
					t.Errorf("two have it: %v", err)
				}
				panic("mine")
			})
		}()
		if err := l.With(ctx, "job", lockproxy.Options{Wait: 500 * time.Millisecond}, nothing); err != nil {
			t.Error(err)
		}
	})
}

// Errors to renewals while Redis is away do not end a hold.
func TestRedisIsKilledAndComesBack(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "outage", lockproxy.Options{Lease: 6 * time.Second}, func(ctx context.Context, _ lockproxy.Hold) error {
				p.redis.kill()
				time.Sleep(3 * time.Second)
				p.redis.start()
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(4 * time.Second):
					return nil
				}
			})
			if err != nil {
				t.Error(err)
			}
			if err := l.With(ctx, "outage", lockproxy.Options{Wait: 3 * time.Second}, nothing); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProxyIsKilled(t *testing.T) {
	p, ctx := newPlace(t), context.Background()
	for name, l := range p.locks {
		t.Run(name, func(t *testing.T) {
			err := l.With(ctx, "restart", lockproxy.Options{Lease: 5 * time.Second}, func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				p.proxy.start()
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(6 * time.Second):
					return nil
				}
			})
			if err != nil {
				t.Errorf("with a proxy that was there again within the lease: %v", err)
			}
			err = l.With(ctx, "dead", lockproxy.Options{Lease: time.Second}, func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				<-ctx.Done()
				p.proxy.start()
				return nil
			})
			if !errors.Is(err, lockproxy.ErrLost) || !strings.Contains(err.Error(), "in time") {
				t.Errorf("with a proxy that was away for longer than the lease: %v", err)
			}
			err = l.With(ctx, "watched by "+name, lockproxy.Options{Watched: true}, func(ctx context.Context, _ lockproxy.Hold) error {
				p.proxy.kill()
				p.proxy.start()
				<-ctx.Done()
				return nil
			})
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
			err := l.With(ctx, "write", lockproxy.Options{Lease: 2 * time.Second}, func(context.Context, lockproxy.Hold) error {
				return fmt.Errorf("no answer: %w", net.ErrClosed)
			})
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if err := l.With(ctx, "write", lockproxy.Options{}, nothing); !errors.Is(err, lockproxy.ErrNotAcquired) {
				t.Errorf("the lock was given back: %v", err)
			}
			if err := l.With(ctx, "write", lockproxy.Options{Wait: 10 * time.Second}, nothing); err != nil {
				t.Error(err)
			}
		})
	}
}
