package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const addr = "10.0.0.1:6379"

func inBubble(t *testing.T, test func(t *testing.T, w *World)) {
	synctest.Test(t, func(t *testing.T) {
		w := New(1)
		t.Cleanup(w.Close)
		test(t, w)
	})
}

func dial(t *testing.T, w *World, to string) net.Conn {
	t.Helper()
	c, err := w.Proxy("one").Dial(context.Background(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// write sends commands of words without spaces.
func write(t *testing.T, c net.Conn, commands ...string) {
	t.Helper()
	var b strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		t.Fatal(err)
	}
}

// hear is what comes within d.
func hear(t *testing.T, c net.Conn, d time.Duration) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	all, err := io.ReadAll(c)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q, then %v", all, err)
	}
	return string(all)
}

func TestKeysAgeByTheNodesOwnClock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		n := w.NewNode(addr)
		c := dial(t, w, addr)
		write(t, c, "SET k v PX 1000", "SET late v PX 5000")
		if got := hear(t, c, time.Millisecond); got != "+OK\r\n+OK\r\n" {
			t.Fatalf("%q", got)
		}
		time.Sleep(900 * time.Millisecond)
		if left := n.Do(t, "PTTL", "k").(int64); left < 98 || left > 100 {
			t.Fatal(left)
		}
		time.Sleep(200 * time.Millisecond)
		if n.Do(t, "EXISTS", "k").(int64) != 0 || n.Do(t, "EXISTS", "late").(int64) != 1 {
			t.Fatal("at 1.1 s")
		}
		n.Jump(10 * time.Second)
		if n.Do(t, "EXISTS", "late").(int64) != 0 {
			t.Fatal("a clock that jumps ends what it jumps over")
		}
		at := n.Do(t, "TIME").([]any)
		if got := string(at[0].([]byte)); got != fmt.Sprint(time.Now().Add(10*time.Second).Unix()) {
			t.Fatal(got)
		}
	})
}

func TestLinks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		n := w.NewNode(addr)
		link := w.Proxy("one").Link(addr)
		c := dial(t, w, addr)
		link.Delay(time.Second, 0)
		write(t, c, "PING")
		if got := hear(t, c, 1900*time.Millisecond); got != "" {
			t.Fatalf("%q", got)
		}
		if got := hear(t, c, 200*time.Millisecond); got != "+PONG\r\n" {
			t.Fatalf("%q", got)
		}
		link.Heal()
		link.Swallow(Replies)
		write(t, c, "INCR n")
		if got := hear(t, c, time.Minute); got != "" || string(n.Do(t, "GET", "n").([]byte)) != "1" {
			t.Fatalf("%q", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := w.Proxy("one").Dial(ctx, "tcp", addr); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		link.Heal()
		write(t, c, "INCR n")
		if got := hear(t, c, time.Minute); got != "" {
			t.Fatalf("a connection that has lost bytes says %q", got)
		}
		c = dial(t, w, addr)
		link.Cut()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		if _, err := w.Proxy("one").Dial(context.Background(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		if _, err := w.Proxy("two").Dial(context.Background(), "tcp", addr); err != nil {
			t.Fatal("another proxy's link is cut:", err)
		}
	})
}

func TestStopContRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		n := w.NewNode(addr)
		c := dial(t, w, addr)
		n.Stop()
		write(t, c, "SET k v")
		if got := hear(t, c, time.Minute); got != "" || n.Do(t, "EXISTS", "k").(int64) != 0 {
			t.Fatalf("%q", got)
		}
		n.Cont()
		if got := hear(t, c, time.Minute); got != "+OK\r\n" {
			t.Fatalf("%q", got)
		}
		before := n.Do(t, "INFO", "server")
		n.Restart()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		if n.Do(t, "DBSIZE").(int64) != 0 || string(before.([]byte)) == string(n.Do(t, "INFO", "server").([]byte)) {
			t.Fatal("it is the same process")
		}
		n.Kill()
		if _, err := w.Proxy("one").Dial(context.Background(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	})
}

func TestMessagesOfScripts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		n := w.NewNode(addr)
		old, young := dial(t, w, addr), dial(t, w, addr)
		write(t, old, "SUBSCRIBE c")
		write(t, young, "HELLO 3", "SUBSCRIBE c", "PING")
		hear(t, old, time.Second)
		if got := hear(t, young, time.Second); !strings.HasSuffix(got, ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n+PONG\r\n") {
			t.Fatalf("%q", got)
		}
		if n.Do(t, "EVAL", "redis.call('PUBLISH', 'c', 'x') return redis.call('PUBLISH', 'c', 'y')", 0).(int64) != 2 {
			t.Fatal("two hear it")
		}
		const x, y = "$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", "$7\r\nmessage\r\n$1\r\nc\r\n$1\r\ny\r\n"
		if got := hear(t, old, time.Second); got != "*3\r\n"+x+"*3\r\n"+y {
			t.Fatalf("%q", got)
		}
		if got := hear(t, young, time.Second); got != ">3\r\n"+x+">3\r\n"+y {
			t.Fatalf("%q", got)
		}
	})
}

func TestClusterRedirects(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		k := w.NewCluster(addr, "10.0.0.2:6379", "10.0.0.3:6379")
		if Slot("123456789") != 0x31c3 || Slot("a{123456789}b") != 0x31c3 || Slot("{}") == 0 {
			t.Fatal("the slots are not those of Redis")
		}
		c := dial(t, w, addr)
		write(t, c, "GET 123456789", "ASKING", "GET 123456789", "CLUSTER MYID", "EVAL return{1} 2 a b")
		want := "-MOVED 12739 10.0.0.3:6379\r\n+OK\r\n$-1\r\n$40\r\n" + k.Nodes()[0].id + "\r\n-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		if got := hear(t, c, time.Second); got != want {
			t.Fatalf("%q", got)
		}
		if k.Owner("123456789") != k.Nodes()[2] {
			t.Fatal(k.Owner("123456789").Addr())
		}
	})
}

// TestWhatIsWrittenAtOnce: several goroutines write scripts in one instant. In whatever order they came, the node does them in one, and
// the replies are in the order of the requests.
func TestWhatIsWrittenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World) {
		n := w.NewNode(addr)
		var done []string
		n.Log(func(_ time.Time, _ *Node, command []string, _ string) { done = append(done, command[3]) })
		c := dial(t, w, addr)
		write(t, c, "EVAL return'c' 1 c", "EVAL return'a' 1 a")
		write(t, c, "EVAL return'b' 1 b")
		if got := hear(t, c, time.Second); got != "$1\r\nc\r\n$1\r\na\r\n$1\r\nb\r\n" {
			t.Fatalf("%q", got)
		}
		if got := fmt.Sprint(done); got != "[a b c]" {
			t.Fatal(got)
		}
	})
}
