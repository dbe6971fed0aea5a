package checked

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patient = 10 * time.Second
	hasty   = time.Millisecond

	hello     = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
	hello6    = "%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nversion\r\n$5\r\n6.2.0\r\n"
	noHello   = "-ERR unknown command 'HELLO'\r\n"
	began     = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	alsoBegan = ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
	ended     = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n"
	said      = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n"
	clock     = "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"
)

// node plays a Redis that answers each write with the next of its answers; when they are over it hangs up. It waits
// so long for a write, and goes on without one then.
func node(c net.Conn, patience time.Duration, answers []string) {
	defer c.Close()
	buf := make([]byte, 4<<10)
	for _, a := range answers {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if _, err := io.WriteString(c, a); err != nil {
			return
		}
	}
}

// client returns one whose connections lead to a node: the answers of each are an argument. The last is that of all
// further ones.
func client(patience time.Duration, answers ...[]string) (rueidis.Client, error) {
	var dialled atomic.Int32
	c, err := rueidis.NewClient(options(func() net.Conn {
		here, there := net.Pipe()
		go node(there, patience, answers[min(int(dialled.Add(1)), len(answers))-1])
		return New(here)
	}))
	if err != nil && c != nil {
		c.Close()
	}
	return c, err
}

func options(dial func() net.Conn) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{"node:1"}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, AlwaysPipelining: true,
		ClientSetInfo: rueidis.DisableClientSetInfo, PipelineMultiplex: -1, RingScaleEachConn: 2, ReadBufferEachConn: 512, WriteBufferEachConn: 512,
		Dialer: net.Dialer{Timeout: time.Second, KeepAlive: time.Minute}, ConnWriteTimeout: time.Second,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return dial(), nil
		},
	}
}

// use does with a client what lockproxy does with one, and returns what TIME said. It ends within moments when the
// node hangs up.
func use(patience time.Duration, answers ...string) (clock []string, err error) {
	client, err := client(patience, answers)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	clock, err = client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	client.DoMulti(ctx, client.B().Ping().Build(), client.B().Arbitrary("EVALSHA", "x", "0").Build())
	return clock, err
}

// listen subscribes to two channels and ends that, on a connection of its own.
func listen(patience time.Duration, answers ...[]string) (heard string, err error) {
	client, err := client(patience, answers...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	conn, release := client.Dedicate()
	defer release()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	messages := make(chan string, 16)
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		select {
		case messages <- m.Message:
		default:
		}
	}})
	err = conn.Do(ctx, conn.B().Ping().Build()).Error()
	err = errors.Join(err, conn.Do(ctx, conn.B().Subscribe().Channel("a", "b").Build()).Error())
	err = errors.Join(err, conn.Do(ctx, conn.B().Unsubscribe().Channel("a").Build()).Error())
	select {
	case heard = <-messages:
	default:
	}
	return heard, err
}
