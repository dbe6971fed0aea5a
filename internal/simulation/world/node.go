package world

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Node is one Redis.
type Node struct {
	w       *World
	addr    string
	id      string // of a cluster's node
	redis   *miniredis.Miniredis
	srv     *server.Server
	lua     scripting
	cluster *Cluster // nil: it is none's

	// guarded by World.mu
	down    bool       // it does not run
	stopped bool       // it runs, and does nothing, as after SIGSTOP
	waiting []*message // arrived since it was stopped
	offset  time.Duration
	synced  time.Time // by its own clock: keys have aged until then
	started time.Time // by its own clock
	lives   int       // how often it was started
	served  int       // commands carried out
	conns   map[*conn]struct{}
	dirty   []*conn // have output of the command under way

	log func(at time.Time, n *Node, command []string, reply string)
}

// NewNode adds a Redis that is running and empty. It is reached by addr, a host:port that means nothing outside.
func (w *World) NewNode(addr string) *Node {
	n := &Node{w: w, addr: addr, id: w.identity(addr, -1), redis: miniredis.NewMiniRedis(), conns: map[*conn]struct{}{}}
	// miniredis has its commands only once it listens. Nobody ever connects there: it is closed at once.
	if err := n.redis.Start(); err != nil {
		panic("world: " + err.Error())
	}
	n.srv = n.redis.Server()
	n.lua = scripting{n: n, known: map[string]script{}}
	n.srv.Close()
	n.srv.SetPreHook(n.hook)
	n.synced = time.Now()
	n.started = n.synced
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[addr] = n
	return n
}

// Addr is the node's address.
func (n *Node) Addr() string { return n.addr }

// Log has every command that a client sends from now on told, with its reply. f must not block, nor use the World.
func (n *Node) Log(f func(at time.Time, n *Node, command []string, reply string)) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.log = f
}

// Served is how many commands of clients it has carried out.
func (n *Node) Served() int {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.served
}

// Stop has the node do nothing, as SIGSTOP does: connections can be made, and what arrives waits for Cont.
func (n *Node) Stop() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.stopped = true
}

// Cont ends Stop: everything that has arrived is done now.
func (n *Node) Cont() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.stopped = false
	waiting := n.waiting
	n.waiting = nil
	for _, m := range waiting {
		m.arrive()
	}
}

// Kill ends the node: connections break, and new ones are refused until Start or Restart.
func (n *Node) Kill() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.kill()
}

func (n *Node) kill() {
	n.down, n.stopped, n.waiting = true, false, nil
	for c := range n.conns {
		c.end(errReset)
	}
}

// Start has a killed node run again, with the data it had.
func (n *Node) Start() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.start()
}

func (n *Node) start() {
	n.down = false
	n.lives++
	n.started = n.time()
	n.run([]string{"SCRIPT", "FLUSH"})
}

// Restart is Kill and Start, and the data is gone.
func (n *Node) Restart() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.kill()
	n.start()
	n.run([]string{"FLUSHALL"})
}

// Jump moves the node's clock, and with it the ends of all keys.
func (n *Node) Jump(by time.Duration) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.offset += by
}

// Time is the node's clock.
func (n *Node) Time() time.Time {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.time()
}

func (n *Node) time() time.Time { return time.Now().Add(n.offset) }

// Age is when the node began to run, by its own clock, moved into the past, for INFO's uptime.
func (n *Node) Age(by time.Duration) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.started = n.started.Add(-by)
}

// Ask carries out a command at once, as a client on the node's own machine would; it works on a node that is stopped or down, too.
// The reply is what redigo makes of it: int64, []byte, a status' string, nil, []any; or an error, which Redis answered.
func (n *Node) Ask(args ...any) any {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	reply, _ := parseReply(n.run(words))
	return reply
}

// Do is Ask, and an error fails the test.
func (n *Node) Do(t testing.TB, args ...any) any {
	t.Helper()
	reply := n.Ask(args...)
	if err, failed := reply.(error); failed {
		t.Fatalf("world: %v: %v", args, err)
	}
	return reply
}

// run is Ask, and the reply is as on the wire, in RESP2. mu is held.
func (n *Node) run(command []string) string {
	s := newSession()
	n.command(s, command)
	n.deliver("pushed")
	return s.take()
}

// age has the keys be as old as the node's clock says. mu is held.
func (n *Node) age(command string) {
	now := n.time()
	n.redis.SetTime(now)
	if keyless[command] {
		return
	}
	if passed := now.Sub(n.synced); passed != 0 {
		n.redis.FastForward(passed)
		n.synced = now
	}
}

// keyless are the commands that are sent often and see no key: for them the keys need not age.
var keyless = map[string]bool{"PING": true, "TIME": true, "HELLO": true, "AUTH": true, "INFO": true, "CLUSTER": true, "SUBSCRIBE": true, "SSUBSCRIBE": true}

// serve carries out a message. mu is held.
func (n *Node) serve(m *message) {
	c := m.from
	replies := make([]string, len(m.commands))
	for _, i := range m.sorted() {
		if c.served == nil {
			return
		}
		n.served++
		n.serveOne(c.served, m.commands[i])
		replies[i] = c.served.take()
		if n.log != nil {
			n.log(time.Now(), n, m.commands[i], replies[i])
		}
	}
	c.deliver([]byte(strings.Join(replies, "")), "replies")
	n.deliver("pushed")
	if c.served != nil && c.served.peer.Closed() {
		c.forget()
	}
}

// serveOne is command for one that came over a wire: a cluster's node refuses what another node has. mu is held.
func (n *Node) serveOne(s *session, command []string) {
	asked := s.asking
	s.asking = strings.EqualFold(command[0], "ASKING")
	if n.cluster != nil {
		if refusal := n.cluster.refuse(n, command, asked); refusal != "" {
			s.peer.WriteError(refusal)
			return
		}
	}
	n.command(s, command)
}

// command has a session's command done; its reply is in the session's output then. mu is held.
func (n *Node) command(s *session, command []string) {
	n.age(command[0])
	command = slices.Clone(command)
	command[0] = strings.ToUpper(command[0])
	switch command[0] {
	case "MULTI":
		s.queues = true
	case "EXEC", "DISCARD", "RESET":
		s.queues = false
	}
	if f := own[command[0]]; f != nil && !s.queues {
		f(n, s, command[1:])
		return
	}
	if s.queues && command[0] == "EVALSHA" && len(command) > 1 {
		if kept, known := n.lua.known[strings.ToLower(command[1])]; known { // transactions are miniredis', which knows no script
			command[0], command[1] = "EVAL", kept.source
		}
	}
	n.srv.Dispatch(s.peer, command)
}
