package session

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// What is different when the upstream is a cluster is in the files nodes*.go: ordinary commands go through a
// cluster.Executor, and what has a connection of its own goes to the node that has its slot.

const noSlot = -1

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// nodes is a session's way to a cluster's nodes.
type nodes struct {
	exec     *cluster.Executor // nil: not needed yet
	quick    *cluster.Executor // the quick lane of scripts; nil: not needed yet
	presence *upstream.Pipe    // see showToRedis; nil: none
	lane     *scriptcache.Lane // that one
}

// executor is the session's own, made when first needed.
func (s *Session) executor() *cluster.Executor {
	if s.pipes.nodes.exec == nil {
		s.pipes.nodes.exec = s.newExecutor(s.ident)
	}
	return s.pipes.nodes.exec
}

// newExecutor makes an executor of the session's for id. Close gives its connections back.
func (s *Session) newExecutor(id upstream.Identity) *cluster.Executor {
	return s.srv.o.Cluster.Executor(id).For(s)
}

// MayHold implements cluster.Holder: n bytes of replies are to lie here beside those gathered before.
func (s *Session) MayHold(n int) bool {
	if b := s.batch; b != nil {
		n += b.fullSize + len(b.out)
	}
	return s.guard.MayGather(n)
}

// leave gives all connections back.
func (n *nodes) leave() {
	if n.exec != nil {
		n.exec.Close()
	}
	if n.presence != nil {
		n.presence.Release()
	}
	if n.quick != nil {
		n.quick.Close()
		n.lane.Leave()
	}
	*n = nodes{}
}

// route is what the cluster needs to know of a command.
type route struct {
	facts *cluster.Facts
	run   answer // in place of forwarding it, or of the answer there is on one node; nil: none
}

// routeAll notes the route of every command.
func (a *answers) routeAll() {
	a.routes = make(map[*commandtable.Command]*route)
	a.All(func(c *commandtable.Command) { a.routes[c] = newRoute(c) })
}

func newRoute(c *commandtable.Command) *route {
	r := &route{facts: factsOf(c)}
	if run := nodeAnswerers[c.Name]; run != nil && !c.Refusal {
		r.run = checked(c, run)
	}
	return r
}

func factsOf(c *commandtable.Command) *cluster.Facts {
	if c.Spec == nil {
		return nil
	}
	return cluster.FactsOf(c.Name, c.Spec.Flags, c.Spec.Tips)
}

var noRoute route

// routeOf is c's, which is nil when nothing is known of the command.
func (a *answers) routeOf(c *commandtable.Command) *route {
	if c == nil {
		return &noRoute
	}
	if r := a.routes[c]; r != nil {
		return r
	}
	return &route{facts: factsOf(c)}
}

// newTable makes the table of what Redis told of its commands.
func (s *Server) newTable(told []*commandtable.Command) *answers {
	commandtable.MayBlock(told, s.facts.blocking.names())
	a := newAnswers(s.o.Allow, s.o.Deny, told)
	if s.o.Cluster != nil {
		a.routeAll()
	}
	return a
}

// keysOf finds which words of a call are keys, and appends them to dst. Where only Redis can tell, it is asked.
func (s *Session) keysOf(c *commandtable.Command, args [][]byte, dst []int) []int {
	if c == nil || c.Spec == nil {
		return dst
	}
	keys, known := c.Spec.Keys(args, dst)
	if known {
		return keys
	}
	reply, err := s.askNodes(encode(append([][]byte{[]byte("COMMAND"), []byte("GETKEYS")}, args...)))
	if err != nil {
		return dst
	}
	return commandtable.Named(reply, args, dst)
}

// slotOf is the slot of a call's keys, noSlot when it has none. cross: they are in several.
func (s *Session) slotOf(c *commandtable.Command, args [][]byte) (slot int, cross bool) {
	slot = noSlot
	for _, k := range s.keysOf(c, args, nil) {
		of := cluster.Slot(args[k])
		if slot != noSlot && of != slot {
			return slot, true
		}
		slot = of
	}
	return slot, false
}

// question is what there is to know of commands that the proxy asks on its own: a lost reply is no unknown outcome.
var question = &cluster.Facts{ReadOnly: true}

// askNodes is askRaw of any node.
func (s *Session) askNodes(raw []byte) ([]byte, error) {
	return s.askPlan(cluster.Command{Raw: raw, Facts: question})
}

// askAbout is ask of a command whose first argument is a key: of the node that has it.
func (s *Session) askAbout(args ...string) ([]byte, error) {
	if s.srv.o.Cluster == nil {
		return s.ask(args...)
	}
	words := make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	return s.askPlan(cluster.Command{Raw: resp.AppendCommand(nil, args...), Args: words, Keys: []int{1}, Facts: question})
}

func (s *Session) askPlan(c cluster.Command) ([]byte, error) {
	p := cluster.NewPlan(c)
	ctx, done := s.clientContext()
	defer done()
	s.executor().Do(ctx, []*cluster.Plan{p})
	err := p.Err
	var lost *upstream.LostError
	if errors.As(err, &lost) {
		err = &upstream.NotSentError{Cause: lost.Cause}
	}
	if err != nil {
		s.noteTrouble(err)
		return nil, err
	}
	return p.Reply, nil
}

// askWhere is ask of that node; nil: of any.
func (s *Session) askWhere(n *cluster.Node, args ...string) ([]byte, error) {
	if n == nil {
		return s.ask(args...)
	}
	p, err := n.Upstream().Open(s.srv.ctx, s.ident)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return s.question(p, resp.AppendCommand(nil, args...))
}

// askApartNodes is askApart of all nodes that the command concerns.
func (s *Session) askApartNodes(args [][]byte) ([]byte, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	t := s.srv.facts.table.Load()
	c, _ := t.find(args)
	p := cluster.NewPlan(cluster.Command{Raw: encode(args), Args: args, Facts: t.routeOf(c).facts})
	s.apartNodes(func(e *cluster.Executor) {
		ctx, done := s.clientContext()
		defer done()
		e.Do(ctx, []*cluster.Plan{p})
	})
	return p.Reply, p.Err
}

// apartNodes has commands sent over connections of their own.
func (s *Session) apartNodes(do func(e *cluster.Executor)) {
	e := s.newExecutor(s.ident)
	defer e.Close()
	e.Private(true)
	do(e)
}

// clientContext is a context that ends when the client has gone. done must be called.
func (s *Session) clientContext() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(s.srv.ctx)
	s.guard.WhenOver(cancel)
	return ctx, func() {
		s.guard.WhenOver(nil)
		cancel()
	}
}

// helloNodes is helloAs of any node.
func (s *Session) helloNodes(id upstream.Identity) (resp.Reply, error) {
	s.executor().As(id)
	got, err := s.askNodes(resp.AppendCommand(nil, "HELLO", string(rune('0'+id.Proto))))
	if line, bad := isError(got); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err != nil {
		s.executor().As(s.ident)
		return resp.Reply{}, err
	}
	s.identity(id)
	s.admit()
	answer, _ := resp.ParseReply(got)
	return answer, nil
}

// node is the upstream, or any of the cluster's masters.
func (s *Server) node() *upstream.Node { return s.nodeOr(nil) }

// nodeOr is n, or node when that is nil.
func (s *Server) nodeOr(n *cluster.Node) *upstream.Node {
	switch c := s.o.Cluster; {
	case n != nil:
		return n.Upstream()
	case c != nil:
		return c.Snapshot().Any(rand.Int()).Upstream()
	}
	return s.o.Node
}

// authenticate asks Redis whether a user may log in: any node will do, and another one if that is out of reach. In a cluster one
// node's refusal is not the cluster's, so that another one is asked before a user is refused: whoever is let in may still do
// at each node only what that node lets it do.
func (s *Server) authenticate(ctx context.Context, from, user, password string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, questionTime, upstream.ErrTimeout)
	defer cancel()
	if s.o.Cluster == nil {
		return s.o.Node.AuthenticateFrom(ctx, from, user, password)
	}
	masters := s.o.Cluster.Snapshot().Masters
	first := rand.IntN(len(masters))
	var refusal error
	for i := range masters {
		err = masters[(first+i)%len(masters)].Upstream().AuthenticateFrom(ctx, from, user, password)
		var unsent *upstream.NotSentError
		switch {
		case err == nil, refusal != nil && !errors.As(err, &unsent):
			return err
		case !errors.As(err, &unsent):
			refusal = err
		}
	}
	if refusal != nil {
		return refusal
	}
	return err
}

// clusterLines are the cluster's part of INFO.
func (s *Server) clusterLines(line func(name string, value any)) {
	snapshot, n := s.o.Cluster.Snapshot(), s.o.Cluster.Stats()
	line("lockproxy_upstream", "cluster")
	line("lockproxy_cluster_masters", len(snapshot.Masters))
	line("lockproxy_cluster_replicas", len(snapshot.Replicas))
	line("lockproxy_cluster_moved", n.Moved)
	line("lockproxy_cluster_asked", n.Asked)
	line("lockproxy_cluster_tried_again", n.TriedAgain)
	line("lockproxy_cluster_down", n.Down)
	line("lockproxy_cluster_retried", n.Retried)
	line("lockproxy_cluster_refreshes", n.Refreshes)
	line("lockproxy_cluster_replica_reads", n.ReplicaReads)
	line("lockproxy_cluster_replica_failures", n.ReplicaFailures)
	line("lockproxy_cluster_resubscribed", s.subscribed.resubscribed.Load())
}

// ReadFrom says which nodes of a cluster answer what clients read.
type ReadFrom string

// The nodes that are read from.
const (
	ReadMaster  ReadFrom = "master"
	ReadReplica ReadFrom = "replica" // replicas, for clients that have not said READWRITE
	ReadClient  ReadFrom = "client"  // replicas, for clients that have said READONLY
)

// mayReadReplicas says that replicas are read from, for some clients at least.
func (s *Server) mayReadReplicas() bool {
	return s.o.Cluster != nil && (s.o.ReadFrom == ReadReplica || s.o.ReadFrom == ReadClient)
}

// readsReplicas says whether what the client reads may come from a replica. While its connection holds a lock it may not,
// since what the last holder wrote might be missing there; nor while it has a connection of its own, as under WATCH, which
// is about what the master has.
func (s *Session) readsReplicas() bool {
	return s.pipes.replicas && s.own.dedicated == nil && s.held() == 0
}
