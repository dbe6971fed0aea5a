package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A server that has not been up for long enough is sent nothing, on either way, and after a restart it is not for as long again.
func TestMinUptime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1)
		defer w.Close()
		s := w.NewNode(inMemory)
		const least = time.Hour
		c := NewControl(Target{Network: "tcp", Addr: s.Addr(), Dialer: w.Proxy("proxy"), MinUptime: least}, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
		defer c.Close()
		ask := func() error {
			client, err := c.Client(0)
			if err != nil {
				t.Fatal(err)
			}
			_, asked := c.Ints(0, "0000000000000000000000000000000000000000", "redis.call('INCR', KEYS[1]) return {1}", []string{"n"}, nil, false)
			if err := client.Do(context.Background(), client.B().Incr().Key("n").Build()).Error(); (err == nil) != (asked == nil) {
				return errors.Join(err, asked)
			}
			return asked
		}
		for range 2 {
			since := time.Now()
			if ask() == nil { // it is told of the restart
				t.Fatal("answered")
			}
			var notSent *NotSentError
			err, young := ask(), new(YoungError)
			if !errors.As(err, &young) || young.Min != least || !errors.As(err, &notSent) {
				t.Fatalf("%T %v", err, err)
			}
			time.Sleep(time.Until(since.Add(least - 2*time.Second)))
			if err := ask(); !errors.As(err, &young) {
				t.Errorf("shortly before it is old enough: %v", err)
			}
			if n := s.Do(t, "EXISTS", "n").(int64); n != 0 {
				t.Fatal("something was sent")
			}
			time.Sleep(5 * time.Second) // Redis says whole seconds, and is asked again after a while
			if err := ask(); err != nil {
				t.Errorf("when it is old enough: %v", err)
			}
			s.Restart()
		}
	})
}

// Nor is one of which that cannot be asked.
func TestMinUptimeWithoutThePassword(t *testing.T) {
	t.Parallel()
	target, err := parseTarget(testredis.Start(t, "--requirepass", "pw").URL())
	if err != nil {
		t.Fatal(err)
	}
	target.MinUptime, target.Password = time.Millisecond, "wrong"
	wrong := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
	defer wrong.Close()
	if _, err := wrong.Ints(0, "x", "return {1}", nil, nil, false); err == nil {
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
		c := NewControl(Target{Network: "tcp", Addr: addr, MinUptime: time.Millisecond, Vetter: distinct.Add(addr, time.Millisecond)},
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

// A server that takes another's place counts when it has been there for as long as a server has to be up, which one that was restarted there has been by
// then.
func TestDistinctTakesOverLater(t *testing.T) {
	const least = time.Minute
	d, now := &Distinct{}, time.Now()
	d.Add("other", least)
	n, other := &named{name: "node", least: least}, d.named[0]
	d.named = append(d.named, n)
	vet := func(after time.Duration, runID string) error {
		now = now.Add(after)
		return d.vet(n, runID, now)
	}
	young := func(err error) time.Duration {
		var y *YoungError
		if !errors.As(err, &y) || !y.Other {
			t.Fatalf("%v", err)
		}
		return y.Min - y.Uptime
	}
	for _, id := range []string{"first", "", "first"} {
		if err := vet(0, id); err != nil {
			t.Errorf("the first one counts at once, and when it is reached again: %v", err)
		}
	}
	if left := young(vet(time.Hour, "second")); left != least {
		t.Error("left", left)
	}
	vet(time.Second, "")
	if left := young(vet(20*time.Second, "second")); left != 39*time.Second {
		t.Error("left", left)
	}
	if err := vet(40*time.Second, "second"); err != nil {
		t.Error(err)
	}
	young(vet(time.Second, "first"))
	if err := d.vet(other, "first", now); err == nil {
		t.Error("one server by two names")
	}
}
