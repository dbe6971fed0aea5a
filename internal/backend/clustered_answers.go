package backend

import (
	"bytes"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// question are the facts of commands that the proxy sends on its own: they change nothing, so a lost reply does no
// harm.
var question = &cluster.Facts{ReadOnly: true}

// askAllFacts makes a command go to all masters. Those that cannot answer are left out.
var askAllFacts = &cluster.Facts{Name: "info", ReadOnly: true, Request: cluster.AllShards, Response: cluster.Each,
	Partial: true}

func (u *clusteredPath) Ask(words [][]byte, at Destination) ([]byte, error) {
	facts := question
	switch at.kind {
	case atSlot:
		if n := u.nodes.Snapshot().Owner(at.slot); n != nil {
			return u.askNode(n, words)
		}
	case atNode:
		return u.askNode(at.node, words)
	case apart:
		return u.askApart(words, at.cmd)
	case scanning:
		facts = scanFacts
	case asWhole:
		return u.insteadOfNode(at.cmd, words)
	case queued:
		n := u.nodes.Snapshot().Owner(cluster.Slot(words[1]))
		if n == nil {
			return nil, errNobodys
		}
		return u.askQueued(n.Upstream(), words)
	}
	return u.askPlan(words, facts)
}

var errNobodys = &upstream.NotSentError{Cause: errors.New("no node has the key's slot")}

func (u *clusteredPath) askPlan(words [][]byte, facts *cluster.Facts) ([]byte, error) {
	return u.answered(u.carryOut(u.executor(shared), words, facts))
}

// carryOut carries out a command that has no key, as far as is known.
func (u *clusteredPath) carryOut(e *cluster.Executor, words [][]byte, facts *cluster.Facts) ([]byte, error) {
	p := cluster.NewPlan(cluster.Command{Raw: resp.Command(words), Args: words, Facts: facts})
	u.do(e, []*cluster.Plan{p})
	return p.Reply, p.Err
}

func (u *clusteredPath) AskKeys(all [][][]byte) (replies [][]byte, err error) {
	plans := make([]*cluster.Plan, len(all))
	for i, words := range all {
		plans[i] = cluster.NewPlan(cluster.Command{Raw: resp.Command(words), Args: words, Facts: question,
			Keys: []int{1}})
	}
	u.do(u.executor(shared), plans)
	for _, p := range plans {
		reply, err := u.answered(p.Reply, p.Err)
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// askNode asks one node.
func (u *clusteredPath) askNode(n *cluster.Node, words [][]byte) ([]byte, error) {
	p, err := n.Upstream().Open(u.Context, u.client.Identity())
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return u.question(p, resp.Command(words))
}

// askApart asks all nodes that c concerns, over connections of their own.
func (u *clusteredPath) askApart(words [][]byte, c *commandtable.Command) ([]byte, error) {
	e := u.executor(private)
	defer e.Close()
	return u.carryOut(e, words, u.Routes.Load().of(c))
}

func (u *clusteredPath) AskAll(words [][]byte) ([]resp.Reply, error) {
	answer, err := u.askPlan(words, askAllFacts)
	if err != nil {
		return nil, err
	}
	all, _ := resp.ParseReply(answer)
	return all.Elems, nil
}

// insteadOfNode answers a command in place of one node, outside of transactions, as its row says.
func (u *clusteredPath) insteadOfNode(c *commandtable.Command, words [][]byte) ([]byte, error) {
	switch c.Clustered.How {
	case commandtable.ClusteredUnion:
		return u.channels(c, words)
	case commandtable.ClusteredRunning:
		return u.functionStats(words)
	}
	return refused(c, words)
}

// refused refuses a command that has no sense on a cluster, but for a call that only switches it off.
func refused(c *commandtable.Command, words [][]byte) ([]byte, error) {
	if c.Clustered.ButOff && len(words) == 3 && bytes.EqualFold(words[2], []byte("OFF")) {
		return okReply, nil
	}
	return nil, &upstream.ReplyError{Line: c.Clustered.Line}
}

// channels is PUBSUB CHANNELS, or SHARDCHANNELS, of all nodes: each knows of its own subscribers only.
func (u *clusteredPath) channels(c *commandtable.Command, words [][]byte) ([]byte, error) {
	reply, err := u.carryOut(u.executor(shared), words, u.Routes.Load().of(c))
	n, _, ok := resp.Open(reply)
	if err != nil || !ok || n < 0 {
		return reply, err
	}
	const nameBytes = 24 // of a slice
	if !u.client.MayHold(2*len(reply) + n*nameBytes) {
		return nil, cluster.ErrTooMuch
	}
	names := slices.AppendSeq(make([][]byte, 0, n), resp.Elements(reply))
	slices.SortFunc(names, bytes.Compare)
	names = slices.CompactFunc(names, bytes.Equal)
	out := resp.AppendArray(make([]byte, 0, len(reply)), len(names))
	for _, name := range names {
		out = append(out, name...)
	}
	return out, nil
}

// functionStats is FUNCTION STATS: the answer of a master that runs a script, or else of any, since all have the same
// libraries.
func (u *clusteredPath) functionStats(words [][]byte) ([]byte, error) {
	all, err := u.AskAll(words)
	if err != nil {
		return nil, err
	}
	said := all[0].Raw
	for _, r := range all {
		if len(r.Elems) > 1 && string(r.Elems[0].Text) == "running_script" && !r.Elems[1].Null {
			said = r.Raw
		}
	}
	return said, nil
}
