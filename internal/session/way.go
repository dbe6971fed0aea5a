package session

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// way is how one client's commands reach Redis: single, or clustered.
type way interface {
	// dispatch has a command run, in a transaction perhaps; answer, if there is one, answers it here.
	dispatch(cmd redcon.Command, c *commandtable.Command, answer answer)

	// forward sends the run, and gathers its replies.
	forward(big bool)
	// sendScripts is forward of a run that has scripts in it, over the connection that suits it; it says how long Redis took.
	sendScripts(big, runs, known bool) time.Duration
	// reload has scripts loaded again that Redis has lost, and what needed them sent again.
	reload(start int, ends []int, shas []string, seen uint64, send func() time.Duration)

	// ask asks what any node knows; askAbout the one that has the key behind the command's name; askSlot the one that has the slot.
	ask(raw []byte) ([]byte, error)
	askAbout(words ...string) ([]byte, error)
	askSlot(slot int, words ...string) ([]byte, error)
	// askApart asks on connections of its own, where it need not wait for others.
	askApart(args [][]byte) ([]byte, error)
	askInfo(args [][]byte) ([]byte, error)

	// hello takes id on and asks for the answer to HELLO there; if Redis does not agree nothing changes.
	hello(id upstream.Identity) (resp.Reply, error)
	helloSubscriptions(id upstream.Identity) error
	selectDB(n int, word string)
	// show has a shared connection as the client's user.
	show(ctx context.Context)
	// served says that the shared connection of a client that has not authenticated is one that Redis lets run commands.
	served() bool

	openDedicated() (*dedicatedConn, error)
	// left is told that a connection of the session's own at that node has ended.
	left(n *cluster.Node)
	fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error

	dropSubscriptions()
	// returnBig gives back what big traffic alone needs; leave all shared connections.
	returnBig()
	leave()
}

// ask runs one command that changes nothing on the client's identity and returns Redis' reply as it came. A lost
// reply is no unknown outcome here: the error then is a *upstream.NotSentError, as if nothing had been asked.
func (s *Session) ask(args ...string) ([]byte, error) {
	return s.askRaw(resp.AppendCommand(nil, args...))
}

func (s *Session) askRaw(raw []byte) ([]byte, error) {
	if s.lockedOut() {
		return resp.AppendError(nil, noAuth), nil
	}
	return s.pipes.way.ask(raw)
}

func (s *Session) question(p *upstream.Pipe, raw []byte) ([]byte, error) {
	var got backend.Gathered
	err := p.Ask(&upstream.Request{Cmds: [][]byte{raw}, Sink: &got, Patient: true}, backend.QuestionTime)
	if err = backend.Unanswered(err); err != nil {
		s.noteTrouble(err)
		return nil, err
	}
	return got, nil
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
