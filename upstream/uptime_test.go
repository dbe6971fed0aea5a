package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A server that has not been up for long enough is sent nothing, on either way, and after a restart it is not for as long again.
func TestMinUptime(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass", "pw")
	target, err := ParseTarget(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	target.MinUptime = 5 * time.Second // a start that takes long is no reason to be taken for old
	c := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close()
	const script = "redis.call('INCR', KEYS[1]) return {1}"
	ask := func() error {
		client, err := c.Client(0)
		if err != nil {
			t.Fatal(err)
		}
		_, asked := c.Ints(0, "0000000000000000000000000000000000000000", script, []string{"n"}, nil)
		if err := client.Do(context.Background(), client.B().Incr().Key("n").Build()).Error(); (err == nil) != (asked == nil) {
			return errors.Join(err, asked)
		}
		return asked
	}
	for range 2 {
		var young *YoungError
		var notSent *NotSentError
		err := ask()
		for end := time.Now().Add(time.Minute); !errors.As(err, &young) && time.Now().Before(end); err = ask() {
			time.Sleep(10 * time.Millisecond) // it is told of the restart
		}
		if young == nil || young.Min != target.MinUptime || !errors.As(err, &notSent) {
			t.Fatalf("%T %v", err, err)
		}
		if n := s.Do(t, "EXISTS", "n").(int64); n != 0 {
			t.Fatal("something was sent")
		}
		for end := time.Now().Add(time.Minute); ask() != nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never old enough")
			}
		}
		s.Restart()
	}
	target.Password = "wrong"
	wrong := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
	defer wrong.Close()
	if _, err := wrong.Ints(0, "x", script, []string{"n"}, nil); err == nil {
		t.Error("without its password")
	}
}

// A replica is not connected to, nor one server by two names at one time.
func TestVetted(t *testing.T) {
	t.Parallel()
	master, replica := testredis.Start(t), testredis.Start(t)
	replica.Do(t, "REPLICAOF", "127.0.0.1", master.Port())
	distinct := &Distinct{}
	ping := func(addr string) (*Control, func() error) {
		c := NewControl(Target{Network: "tcp", Addr: addr, MinUptime: time.Millisecond, Vetter: distinct.Add(addr)},
			ControlOptions{Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(c.Close)
		return c, func() error {
			client, err := c.Client(0)
			if err != nil {
				return err
			}
			return client.Do(context.Background(), client.B().Ping().Build()).Error()
		}
	}
	eventually := func(what string, ok func(error) bool, ask func() error) {
		t.Helper()
		err := ask()
		for end := time.Now().Add(time.Minute); !ok(err); err = ask() {
			if time.Sleep(20 * time.Millisecond); time.Now().After(end) {
				t.Fatal(what, "never; last: ", err)
			}
		}
	}
	says := func(text string) func(error) bool {
		return func(err error) bool { return err != nil && NotSent(err) && strings.Contains(err.Error(), text) }
	}
	well := func(err error) bool { return err == nil }
	_, first := ping(master.Addr())
	_, second := ping(net.JoinHostPort("localhost", strconv.Itoa(master.Port())))
	_, third := ping(replica.Addr())
	eventually("the first name is good", well, first)
	eventually("the second is refused", says("it is the same server as "+master.Addr()), second)
	eventually("the replica is refused", says(`its role is "slave": it must be a master`), third)
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	eventually("a master is good", well, third)
	master.Kill()
	eventually("it is gone", func(err error) bool { return err != nil }, first)
	eventually("both are", func(err error) bool { return err != nil }, second)
	master.Restart()
	eventually("the name that asks first is good", well, second)
	eventually("the other one is not", says("it is the same server as localhost:"), first)
}
