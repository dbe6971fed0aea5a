package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func newControl(t *testing.T, target Target) *Control {
	t.Helper()
	c := NewControl(target, ControlOptions{DialTimeout: dialTime, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	return c
}

func controlClientOf(t *testing.T, c *Control, db int) rueidis.Client {
	t.Helper()
	client, err := c.Client(db)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// run sends one command.
func run(client rueidis.CommandClient, words ...string) rueidis.RedisResult {
	return client.Do(context.Background(), client.B().Arbitrary(words...).Build())
}

// useControl does with c what the lock code does: scripts in two databases, and
// a wake-up by pub/sub.
func useControl(t *testing.T, c *Control) {
	t.Helper()
	for db, want := range []string{"zero", "one"} {
		client := controlClientOf(t, c, db)
		script := rueidis.NewLuaScript(`redis.call('SET', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])`)
		if got, err := script.Exec(context.Background(), client, []string{"k"}, []string{want}).ToString(); err != nil || got != want {
			t.Fatalf("database %d: got %q, %v", db, got, err)
		}
		if again := controlClientOf(t, c, db); again != client {
			t.Errorf("database %d: another client", db)
		}
	}
	if got, err := run(controlClientOf(t, c, 0), "GET", "k").ToString(); err != nil || got != "zero" {
		t.Fatalf("got %q, %v", got, err)
	}

	subscriber, err := c.Subscriber()
	if err != nil {
		t.Fatal(err)
	}
	dedicated, release := subscriber.Dedicate()
	defer release()
	subscribed, message := make(chan struct{}), make(chan string, 1)
	dedicated.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) { close(subscribed) },
		OnMessage:      func(m rueidis.PubSubMessage) { message <- m.Message },
	})
	if err := dedicated.Do(context.Background(), dedicated.B().Subscribe().Channel("c").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	<-subscribed
	if err := run(controlClientOf(t, c, 1), "PUBLISH", "c", "hello").Error(); err != nil {
		t.Fatal(err)
	}
	if got := <-message; got != "hello" {
		t.Fatalf("got %q", got)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	_, secure := startTLS(t, "localhost")
	withUser := testredis.Start(t, "--user", "svc", "on", ">p w", "+@all", "~*", "&*", "--user", "default", "off")
	plain, err := parseTarget("redis://svc:p%20w@" + withUser.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]Target{"TLS": secure, "user": plain, "password": targetOf(t, testredis.Start(t, "--requirepass x"))} {
		t.Run(name, func(t *testing.T) { useControl(t, newControl(t, target)) })
	}
}

func TestControlOnMiniredis(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	useControl(t, newControl(t, Target{Network: "tcp", Addr: m.Addr()}))
	m.RequireAuth("x")
	useControl(t, newControl(t, Target{Network: "tcp", Addr: m.Addr(), Password: "x"}))
}

func TestControlName(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	c := newControl(t, targetOf(t, s))
	controlClientOf(t, c, 3)
	if got := connections(t, s.Dial(t), " name=lockproxy "); got != 1 {
		t.Fatalf("%d connections", got)
	}
}

func TestControlOutlivesRedis(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Kill()
	c := newControl(t, targetOf(t, s))
	client := controlClientOf(t, c, 0)
	incr := func() error { return run(client, "INCR", "n").Error() }
	if err := incr(); !NotSent(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("got %v", err)
	}
	s.Restart()
	eventually(t, "the client works", func() bool { return incr() == nil })

	// A command that was sent and lost its reply is never said to be unsent.
	result := make(chan error, 1)
	go func() { result <- run(client, "BLPOP", "nothing", "0").Error() }()
	eventually(t, "it is sent", func() bool { return connections(t, s.Dial(t), " cmd=blpop ") == 1 })
	s.Kill()
	if err := <-result; err == nil || NotSent(err) {
		t.Fatalf("got %v", err)
	}
	s.Restart()
	eventually(t, "the client works again", func() bool { return incr() == nil })
}

// The counter tells whether NotSent ever lies.
func TestControlNotSentUnderCuts(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	proxy := testredis.NewProxy(t, s.Addr())
	client := controlClientOf(t, newControl(t, Target{Network: "tcp", Addr: proxy.Addr()}), 0)
	var (
		mu                    sync.Mutex
		done, unsent, unknown int64
		wg                    sync.WaitGroup
		stop                  = make(chan struct{})
	)
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := run(client, "INCR", "n").Error()
				mu.Lock()
				switch {
				case err == nil:
					done++
				case NotSent(err):
					unsent++
				default:
					unknown++
				}
				mu.Unlock()
			}
		})
	}
	unsentBy := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return unsent
	}
	for i := range 60 {
		time.Sleep(8 * time.Millisecond)
		if i%5 == 4 {
			before := unsentBy()
			proxy.Disable()
			eventually(t, "a command is not sent", func() bool { return unsentBy() > before })
			proxy.Enable()
		} else {
			proxy.CutAll()
		}
	}
	close(stop)
	wg.Wait()
	n, _ := run(controlClientOf(t, newControl(t, targetOf(t, s)), 0), "GET", "n").AsInt64()
	t.Logf("counter %d; %d done, %d unknown, %d not sent", n, done, unknown, unsent)
	if n < done || n > done+unknown {
		t.Fatal("NotSent lied")
	}
}

func TestControlConn(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	go func() { b := make([]byte, 5); there.Read(b); there.Close() }()
	c := &controlConn{Conn: here, of: inTerm(here, context.Background(), nil)}
	if _, err := c.Write([]byte("HELLO")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !NotSent(err) {
		t.Fatalf("got %v", err)
	}
	if n, err := c.Write([]byte("INCR")); n != 0 || !NotSent(err) {
		t.Fatalf("got %d, %v", n, err)
	}
	here, there = net.Pipe()
	go func() { b := make([]byte, 5); there.Read(b); there.Read(b); there.Close() }()
	c = &controlConn{Conn: here, of: inTerm(here, context.Background(), nil)}
	c.Write([]byte("HELLO"))
	c.Write([]byte("INCR"))
	if _, err := c.Read(make([]byte, 1)); err == nil || NotSent(err) {
		t.Fatalf("got %v", err)
	}
	here.Close()
}

func TestControlClosed(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	c := newControl(t, targetOf(t, s))
	client := controlClientOf(t, c, 0)
	c.Close()
	if err := run(client, "PING").Error(); err != rueidis.ErrClosing || NotSent(err) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Client(0); !NotSent(err) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Subscriber(); !NotSent(err) {
		t.Errorf("got %v", err)
	}
}

func TestControlRefused(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass x")
	err := run(controlClientOf(t, newControl(t, Target{Network: "tcp", Addr: s.Addr(), Password: "y"}), 0), "PING").Error()
	var re *rueidis.RedisError
	if !errors.As(err, &re) || NotSent(err) || !strings.HasPrefix(err.Error(), "WRONGPASS") {
		t.Fatalf("got %v", err)
	}
}

// TestScriptWithoutAnswer: a script that Redis says nothing to, with the connection up, ends with an unknown outcome; the next
// one goes over another connection.
func TestScriptWithoutAnswer(t *testing.T) {
	t.Parallel()
	p := testredis.NewProxy(t, testredis.Start(t).Addr())
	c := newControl(t, Target{Network: "tcp", Addr: p.Addr()})
	script := func() error {
		_, err := c.Ints(0, "0000000000000000000000000000000000000000", "return {1}", []string{"k"}, nil, false)
		return err
	}
	if err := script(); err != nil {
		t.Fatal(err)
	}
	p.Latency(time.Hour)
	began := time.Now()
	var lost *LostError
	if err := script(); !errors.As(err, &lost) || time.Since(began) < scriptTimeout {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	p.Clear()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := script()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestControlOfDatabasesThatAreNotThere: who asks about databases that Redis does not have, or about many while Redis cannot be reached,
// leaves nothing behind here.
func TestControlOfDatabasesThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t) // has 16
	c := newControl(t, targetOf(t, s))
	kept := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.clients)
	}
	controlClientOf(t, c, 0)
	controlClientOf(t, c, 15)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			client, err := c.Client(99 + i%2)
			if reply, ok := rueidis.IsRedisErr(err); !ok || client != nil || !strings.Contains(reply.Error(), "DB index is out of range") {
				t.Errorf("got %v, %v", client, err)
			}
		})
	}
	wg.Wait()
	if got := kept(); got != 2 {
		t.Errorf("%d clients are kept", got)
	}
	eventually(t, "the others' connections are gone", func() bool { return connections(t, s.Dial(t), " name=lockproxy ") == 2 })
	s.Kill()
	for db := range 4 {
		if _, err := c.Client(1 + db); !NotSent(err) {
			t.Errorf("got %v", err)
		}
	}
	if got := kept(); got != 2 {
		t.Errorf("%d clients are kept", got)
	}
	s.Restart()
	if err := run(controlClientOf(t, c, 1), "PING").Error(); err != nil {
		t.Error(err)
	}
}

// A former master still answers while its connections are being closed. Its replies are none any more.
func TestReplyOfAFormerMaster(t *testing.T) {
	term, end := context.WithCancelCause(context.Background())
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := inTerm(ours, term, nil)
	c.stop() // so that the connection is open still
	go func() { _, _ = theirs.Write([]byte("+OK\r\n+OK\r\n")) }()
	if n, err := c.Read(make([]byte, 5)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	over := errors.New("over")
	end(over)
	if n, err := c.Read(make([]byte, 5)); n != 0 || !errors.Is(err, over) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// Bytes that are no reply, and replies that nobody asked for, end the connection. rueidis would panic in a goroutine of its own.
func TestOddRepliesToControl(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"+OK\r\n+OK\r\n", "$-5\r\n", "$9999999999999999\r\n", "*-2\r\n", "*1000000000\r\n"} {
		hungUp := make(chan struct{}, 8)
		target := fakeRedis(t, func(_ int, c net.Conn) {
			buf := make([]byte, 1<<10)
			c.Read(buf)
			c.Write([]byte("%1\r\n$5\r\nproto\r\n:3\r\n"))
			c.Read(buf)
			c.Write([]byte(odd))
			for {
				if _, err := c.Read(buf); err != nil {
					hungUp <- struct{}{}
					return
				}
			}
		})
		client := controlClientOf(t, newControl(t, target), 0)
		if got, err := client.Do(context.Background(), client.B().Time().Build()).AsStrSlice(); err == nil {
			t.Errorf("%q: got %q", odd, got)
		}
		<-hungUp
	}
}

// A look at a pipe for scripts that comes when one has just begun, after a long rest, leaves its connection alone.
func TestLateLookSparesTheNextScript(t *testing.T) {
	t.Parallel()
	p := newScriptPipe(open(t, newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{}), Identity{Proto: 2}))
	ping := func() error {
		return p.do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "PING")}, Sink: new(Gathered)})
	}
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	before := p.link.Load()
	p.heard.Store(int64(telemetry.Clock() - time.Hour))
	p.check()
	if p.calls.Load() != 0 || p.armed.Load() {
		t.Error("it is watched at rest")
	}
	if err := ping(); err != nil || !p.armed.Load() {
		t.Errorf("a script after a rest is not watched: %v", err)
	}
	p.calls.Add(1) // one that has just begun
	p.check()
	if p.link.Load() != before || before.dead.Load() || !p.armed.Load() {
		t.Error("the connection is another one, or is not watched any more")
	}
	p.heard.Store(int64(telemetry.Clock() - scriptTimeout))
	p.check()
	if !before.dead.Load() {
		t.Error("a silent connection is kept")
	}
	p.calls.Add(-1)
}

// A script that waits for a connection gets ErrClosed when its node is closed, as the node of a replaced master is. With context.Canceled the client
// would be told that its connection has ended.
func TestScriptWhenItsNodeIsClosed(t *testing.T) {
	t.Parallel()
	for range 20 {
		c := newControl(t, silent(t))
		got := make(chan error)
		go func() { _, err := c.Ints(0, "", "return 1", nil, nil, false); got <- err }()
		eventually(t, "it waits for Redis", func() bool {
			c.scripts.node.mu.Lock()
			defer c.scripts.node.mu.Unlock()
			return len(c.scripts.node.shared) == 1
		})
		c.Close()
		if err := <-got; !errors.Is(err, ErrClosed) || !IsNotSent(err) || errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}
