package upstream

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// moving is a node behind an address that leads to the first of two Redis.
type moving struct {
	t        *testing.T
	at       *testredis.Proxy
	address  *Address
	node     *Node
	control  *Control
	switched atomic.Int64
}

func startMoving(t *testing.T, first *testredis.Server) *moving {
	t.Helper()
	m := &moving{t: t, at: testredis.NewProxy(t, first.Addr())}
	target := Target{Network: "tcp", Addr: m.at.Addr()}
	m.address = FollowAddress(&target, slog.New(slog.DiscardHandler))
	t.Cleanup(m.address.Close)
	waitFor(t, "Redis has been asked for its role", m.address.asked)
	m.node, m.control = newNode(t, target, NodeOptions{}), newControl(t, target)
	m.control.OnSwitch(func() { m.switched.Add(1) })
	return m
}

// set says what Redis answers to a SET over a shared connection.
func (m *moving) set() string {
	p, err := m.node.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		return err.Error()
	}
	defer p.Release()
	got, err := p.Ask(&Request{Cmds: [][]byte{[]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n")}}, patience)
	if err != nil {
		return err.Error()
	}
	return string(got)
}

// demote makes a a replica of b, which becomes a master; connections to a stay.
func demote(t *testing.T, a, b *testredis.Server) {
	t.Helper()
	b.Do(t, "REPLICAOF", "NO", "ONE")
	host, port, _ := strings.Cut(b.Addr(), ":")
	a.Do(t, "REPLICAOF", host, port)
}

// An address that moves to another Redis takes all connections with it, although the former master lives on as a replica.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	both := testredis.StartSet(t, 2)
	m := startMoving(t, both[0])
	if got := m.set(); got != "+OK\r\n" {
		t.Fatal(got)
	}
	useControl(t, m.control)
	dedicated := dedicate(t, m.node, Identity{Proto: 2})

	demote(t, both[0], both[1])
	waitFor(t, "writes are known to be refused", func() bool { return m.address.RefusesWrites() != nil })
	if m.switched.Load() != 0 || dedicated.conn.term.Err() != nil {
		t.Error("connections end although the address leads to no other Redis")
	}
	m.at.Redirect(both[1].Addr())
	if err := dedicated.ends(t); !strings.Contains(err.Error(), "is a replica now") {
		t.Errorf("a dedicated connection: %v", err)
	}
	waitFor(t, "writes go to the new master", func() bool { return m.set() == "+OK\r\n" })
	waitFor(t, "the lock engine's scripts run there", func() bool {
		return run(controlClientOf(t, m.control, 0), "SET", "k", "w").Error() == nil
	})
	waitFor(t, "writes are known to be taken", func() bool { return m.address.RefusesWrites() == nil })
	if kind, addr, moves := m.node.Upstream(); kind != "redis" || addr != m.at.Addr() || moves != 1 || m.switched.Load() != 1 {
		t.Errorf("upstream is %s %s after %d moves; %d hooks", kind, addr, moves, m.switched.Load())
	}
}

// A connection that was made before the present Redis was known may lead to the former master: its first READONLY ends it.
func TestAddressMovedUnseen(t *testing.T) {
	t.Parallel()
	both := testredis.StartSet(t, 2)
	m := startMoving(t, both[0])
	if got := m.set(); got != "+OK\r\n" {
		t.Fatal(got)
	}
	demote(t, both[0], both[1])
	m.address.Begin(m.at.Addr()) // as when the connection that asks for the role was lost, and leads to the new master when it is made again
	m.at.Redirect(both[1].Addr())
	waitFor(t, "writes go to the new master", func() bool { return m.set() == "+OK\r\n" })
}

// A Redis that is started again is the same: connections made to it since do not end once more.
func TestAddressStays(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	m := startMoving(t, server)
	before := m.address.term()
	server.Restart()
	waitFor(t, "the role is known again", func() bool { return m.address.term() != before })
	if got := m.set(); got != "+OK\r\n" {
		t.Error(got)
	}
	if _, moves := m.address.Present(); moves != 0 || before.Err() != nil || m.switched.Load() != 0 {
		t.Errorf("%d moves, %d hooks; the former term: %v", moves, m.switched.Load(), before.Err())
	}
}

func TestRoleIn(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]role{
		"*4\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$6\r\nmaster\r\n":         master,
		"%2\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$7\r\nreplica\r\n":        replica,
		"*2\r\n$4\r\nrole\r\n$5\r\nslave\r\n":                            replica,
		"-NOAUTH HELLO must be called with the client authenticated\r\n": untold,
		"*2\r\n$6\r\nmaster\r\n$4\r\nrole\r\n":                           untold,
	} {
		if got := roleIn([]byte(reply)); got != want {
			t.Errorf("%q: %d, want %d", reply, got, want)
		}
	}
}

// asked says that Redis has been asked for its role.
func (a *Address) asked() bool { return role(a.present.Load()) != unreachable }

func (a *Address) term() *Term {
	now, _ := a.Now()
	return now
}
