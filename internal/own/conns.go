package own

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// conns are connections beside the client's own, one to each master.
type conns []*conn

// send sends a command to all masters, which may wait for so long; 0: for ever.
func (all conns) send(raw []byte, wait time.Duration) []*dedicated.Reply {
	sent := make([]*dedicated.Reply, len(all))
	for i, p := range all {
		sent[i] = p.Own(&dedicated.Reply{Wait: dedicated.Wait{Blocks: true, For: wait}}, raw)
	}
	return sent
}

// await waits for all replies, and gives up each connection that takes longer than most; 0: none. false: the client has
// gone.
func (all conns) await(most time.Duration) bool {
	for _, p := range all {
		p.Flush()
	}
	for _, p := range all {
		wait := p.Wait
		if most > 0 {
			wait = func() bool { return p.WaitFor(most) }
		}
		if !wait() {
			return false
		}
	}
	return true
}

// answers returns the replies, or an error that is among them.
func (all conns) answers(to []*dedicated.Reply) ([]resp.Reply, error) {
	replies := make([]resp.Reply, len(to))
	for i, p := range all {
		reply, err := p.Answer(to[i])
		if err == nil {
			err = upstream.ErrorIn(reply)
		}
		if err != nil {
			return nil, err
		}
		replies[i], _ = resp.ParseReply(reply)
		replies[i].Raw = reply
	}
	return replies, nil
}

// end gives the connections back, or closes those on which replies are pending.
func (all conns) end() {
	for _, p := range all {
		if !p.giveBack() {
			p.drop()
		}
	}
}
