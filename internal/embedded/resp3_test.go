package embedded

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// speaker is a connection in RESP3.
type speaker struct {
	t *testing.T
	net.Conn
}

func speak(t *testing.T, addr string) speaker {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := speaker{t, c}
	if hello := s.ask("HELLO 3"); hello[0] != '%' {
		t.Fatalf("HELLO: %q", hello)
	}
	return s
}

func (s speaker) send(command string) {
	s.t.Helper()
	if _, err := s.Write(resp.AppendCommand(nil, strings.Fields(command)...)); err != nil {
		s.t.Fatal(err)
	}
}

// ask is a command's reply as it comes.
func (s speaker) ask(command string) string {
	s.t.Helper()
	s.send(command)
	return s.next()
}

func (s speaker) next() string {
	s.t.Helper()
	s.SetReadDeadline(time.Now().Add(time.Minute))
	var scan resp.Scanner
	var frame []byte
	for b := make([]byte, 1); ; {
		if _, err := s.Read(b); err != nil {
			s.t.Fatalf("after %q: %v", frame, err)
		}
		frame = append(frame, b[0])
		if _, done, err := scan.Scan(b); done || err != nil {
			return string(frame)
		}
	}
}

// In RESP3 the store answers as Redis does.
func TestShapesAreRedisOwn(t *testing.T) {
	t.Parallel()
	redis, ours := speak(t, testredis.Start(t).Addr()), speak(t, startStore(t).Addr())
	for _, command := range []string{
		"ZADD z 1 a 2.5 b 3 c 4 d", "ZRANGE z 0 -1", "ZRANGE z 0 -1 WITHSCORES", "ZRANGE nosuch 0 -1 WITHSCORES",
		"ZREVRANGE z 0 1 WITHSCORES", "ZRANGEBYSCORE z 1 2 WITHSCORES", "ZREVRANGEBYSCORE z 2 1 withscores",
		"ZUNION 1 z WITHSCORES", "ZUNION 1 z", "ZINTER 1 z WITHSCORES", "ZPOPMIN z", "ZPOPMAX z 1", "ZPOPMIN nosuch",
		"ZPOPMIN z 9", "ZPOPMIN z 9", "ZADD y 1 a", "ZRANDMEMBER y 1 WITHSCORES", "ZRANDMEMBER y", "ZRANDMEMBER y 1",
		"HSET h f v", "HRANDFIELD h 1 WITHVALUES", "HRANDFIELD h 1", "HRANDFIELD nosuch 1 WITHVALUES",
		"ZRANGE h 0 -1 WITHSCORES", "XREAD STREAMS s 0", "XREAD BLOCK 10 STREAMS s 0", "XADD s 1-1 a b",
		"XADD t 1-1 a b", "XREAD STREAMS s t 0 0", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >",
		"XREADGROUP GROUP g c BLOCK 10 STREAMS s >", "XREAD COUNT",
		"EVAL return{redis.call('ZRANGE','y',0,-1,'WITHSCORES')} 0",
	} {
		if want, got := redis.ask(command), ours.ask(command); got != want && (want[0] != '-' || got[0] != '-') {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// An XREAD that waits is woken in RESP3, too, and one whose client has gone does not keep the store from ending.
func TestStreamsAreWaitedFor(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	c, other := speak(t, store.Addr()), speak(t, store.Addr())
	c.send("XREAD BLOCK 0 STREAMS s 0")
	other.ask("XADD s 1-1 a b")
	const want = "%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"
	if got := c.next(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	gone := speak(t, store.Addr())
	gone.send("XREAD BLOCK 0 STREAMS s $")
	gone.Close()
	for end := time.Now().Add(time.Minute); store.redis.CurrentConnectionCount() > 2; time.Sleep(goneLook / 2) {
		other.ask("PING")
		other.ask(fmt.Sprintf("SET k %d", end.Unix())) // what is written wakes those that wait
		if time.Now().After(end) {
			t.Fatal("the connection of a client that has gone is still there")
		}
	}
}
