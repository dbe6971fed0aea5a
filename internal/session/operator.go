package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/upstream"
)

// What an operator asks of the proxy: see commands.Operator.

// Operates implements commands.Access.
func (a *access) Operates() bool {
	if a.client.Peer.Operator {
		return true
	}
	operates := slices.Contains(a.srv.facts.rules.Load().Operators, client.UserName(a.client.Identity().User))
	a.operates.Store(operates)
	return operates
}

// refusedOperator returns the error for a call of LOCKPROXY by a client of which Redis could not be asked, because of
// err, whether it may run commands; nil: the call is answered. Operators need LOCKPROXY most while Redis is away, so
// Redis' last answer counts then: the call is answered if that was that it asks for no password. Before there is any
// answer nobody is let in. The client is not closed, so that it learns why.
func (s *Server) refusedOperator(err error) error {
	away := client.Lost(err) && !errors.Is(err, upstream.ErrLeft) // else the client has left before Redis could answer
	if !away {
		return &upstream.ReplyError{Line: client.ErrorLine(err)}
	}
	switch s.freshNeed() { // this asks Redis once more, which may be back by now
	case aPassword:
		return errNoAuth
	case noPassword:
		return nil
	}
	return &upstream.ReplyError{Line: client.ErrorLine(err)}
}

// Operators is what operators ask of the server, at redis-cli or on the page.
type Operators struct{ s *Server }

// Operators is what operators ask.
func (s *Server) Operators() Operators { return Operators{s} }

// noteAct has the log and the events say who asks for what.
func (o Operators) noteAct(by *client.Client, what string) {
	o.s.log.Info("an operator steers this proxy", "client", by.Peer.Addr, "user", by.User(), "asks", what)
	o.s.o.Events.Add(eventOf(events.Act, by, what))
}

// Reload implements commands.Operator.
func (o Operators) Reload(by *client.Client) (said string, err error) {
	o.noteAct(by, "RELOAD")
	return o.s.o.Reload(by.Context())
}

// Drain implements commands.Operator.
func (o Operators) Drain(by *client.Client) {
	o.noteAct(by, "DRAIN")
	o.s.o.Drain()
}

// LogLevel implements commands.Operator.
func (o Operators) LogLevel(by *client.Client, to string) (now string, err error) {
	if to != "" {
		o.noteAct(by, "LOGLEVEL "+to)
	}
	return o.s.o.Level(to)
}

// InForce implements commands.Operator.
func (o Operators) InForce() inforce.State { return o.s.o.InForce() }

// Holders is commands.Proxy's, for the page.
func (o Operators) Holders(n int, part string) (some []commands.ClientHolds, of int) {
	return o.s.clients.Holders(n, part)
}

// KillClient closes the client that has both, as CLIENT KILL does, by whoever that is; false: there is none.
func (o Operators) KillClient(id int64, addr, by string) bool {
	killed, _ := o.s.clients.Kill(commands.KillFilter{ID: id, Addr: &addr}, 0, by)
	return killed > 0
}

// nodeTime is how long a node may take to answer an operator's question.
const nodeTime = time.Second

// Nodes asks at most n of the nodes that commands go to, and of replicas, whether they are there. Behind them are those
// that keep locks alone, as the last trial locks found them.
func (o Operators) Nodes(ctx context.Context, n int) []commands.NodeFacts {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	members := o.s.up.backend.Members()
	members = members[:min(n, len(members))]
	all := make([]commands.NodeFacts, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		all[i].Member = m
		if all[i].Trouble = m.Trouble; m.Trouble != nil {
			continue
		}
		asked.Go(func() { o.askNode(ctx, &all[i]) })
	}
	asked.Wait()
	apart, _ := o.s.o.Locks.Apart()
	for _, a := range apart {
		all = append(all, commands.NodeFacts{Member: backend.Member{Addr: a.Node, Role: "locks"}, Trouble: a.Away()})
	}
	return all
}

// askNode asks the node that f names whether it is there.
func (o Operators) askNode(ctx context.Context, f *commands.NodeFacts) {
	began := time.Now()
	f.Trouble = backend.Ping(ctx, f.Member.Node, o.s.o.Service)
	f.Took = time.Since(began)
}
