package cluster

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// maxRedirects is how often one command follows MOVED and ASK. Without a limit, nodes that disagree would send it round in circles.
const maxRedirects = 16

var asking = resp.AppendCommand(nil, "ASKING")

// redirectKind is what a node says instead of running a command of a slot it cannot serve now.
type redirectKind uint8

const (
	noRedirect redirectKind = iota
	moved
	asked
	tryAgain
	clusterDown
	demoted   // the node is no master any longer: see Refusal
	unreached // there was no connection: see Refusal
)

// readRedirect reads what an error reply says of a slot, and which address it names. What names a slot that no cluster has is no redirect.
func readRedirect(reply []byte) (kind redirectKind, slot int, addr string) {
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	word, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(word) {
	case "-TRYAGAIN":
		return tryAgain, noSlot, ""
	case "-CLUSTERDOWN":
		return clusterDown, noSlot, ""
	case "-MOVED":
		kind = moved
	case "-ASK":
		kind = asked
	default:
		return noRedirect, noSlot, ""
	}
	number, to, found := bytes.Cut(rest, []byte(" "))
	slot, err := strconv.Atoi(string(number))
	if !found || err != nil || !areSlots(slot, slot) || bytes.IndexByte(to, ' ') >= 0 {
		return noRedirect, noSlot, ""
	}
	return kind, slot, string(to)
}

// replied decides what happens to a unit that node has answered with got. A redirect counts only if it is about the slot of the command's
// keys and names a node of the topology. A script can return an error that looks like a redirect: then the node is asked about the same
// keys with EXISTS, whose errors are Redis' own, and that answer is followed. If EXISTS is not refused, the slot may have come back just
// then: a script that changes nothing is sent again; any other might have run.
func (e *Executor) replied(ctx context.Context, u *unit, node *Node, got reply) {
	reply := got.whole
	if u.reading && reply != nil && e.readRefused(u, node, reply) {
		return
	}
	e.countRead(u)
	u.reply, u.pieces = reply, got.pieces
	if u.slot == noSlot && !u.home && !u.plan.cmd.Facts.Script && reply != nil && reply[0] == '-' {
		// Redis may find a key where we found none, in a command whose arguments are wrong (GEORADIUS … STORE, and no more).
		if kind, slot, _ := readRedirect(reply); kind == moved {
			u.slot = slot
		}
	}
	if reply == nil || reply[0] != '-' || u.slot == noSlot {
		u.done = !(u.home && !u.optional && MasterOnly(reply) && e.demoted(u)) && !e.passRefusal(u, reply)
		return
	}
	kind, slot, addr := readRedirect(reply)
	if kind != noRedirect && u.plan.cmd.Facts.Script {
		if kind, slot, addr = e.probe(ctx, u, node); kind == noRedirect && u.plan.cmd.Facts.ReadOnly {
			u.done = !e.again(u, node)
			return
		}
	}
	if kind != noRedirect && kind != clusterDown {
		e.c.replicaReads.hold(u.slot, node)
	}
	switch kind {
	case moved, asked:
		u.done = slot != u.slot || !e.follow(ctx, u, node, kind, addr)
	case tryAgain:
		e.c.count.triedAgain.Add(1)
		u.node, u.ask = nil, false
		u.done = !e.later(u, 5*time.Millisecond)
	case clusterDown:
		e.c.count.down.Add(1)
		u.node, u.ask = nil, false
		e.c.Refresh()
		u.done = !e.later(u, 20*time.Millisecond)
	default:
		u.done = true
	}
}

// Redirect is for commands that no Executor sends, such as those on dedicated connections: it reads reply, an error that
// from gave to a command with keys of slot. If ok, the command has not run: it is to be sent to the node to, after
// ASKING if ask, and the topology is being looked at. to is nil while the topology does not know the node: Refreshed
// waits for the next look. If not ok, the reply is for the client. Redirect must not be called for errors of scripts,
// which can say anything.
func (c *Cluster) Redirect(reply []byte, slot int, from *Node) (to *Node, ask, ok bool) {
	kind, named, addr := readRedirect(reply)
	if kind != moved && kind != asked || named != slot {
		return nil, false, false
	}
	if to = c.Snapshot().named(addr, from); kind == moved || to == nil {
		c.refreshFrom(from)
	}
	return to, kind == asked, true
}

// MasterOnly says that a replica has refused a command, as one that only masters run. WAIT and WAITAOF have their own words.
func MasterOnly(reply []byte) bool {
	return bytes.HasPrefix(reply, []byte("-READONLY ")) || bytes.HasPrefix(reply, []byte("-ERR WAIT")) && bytes.Contains(reply, []byte(" with replica instances"))
}

// demoted handles a unit that was sent to a node as a master, which it is no longer: it waits for the new topology.
func (e *Executor) demoted(u *unit) bool {
	e.c.Refresh()
	return e.later(u, 20*time.Millisecond)
}

// follow makes the unit go where a redirect says; false: the redirect is passed on to the client.
func (e *Executor) follow(ctx context.Context, u *unit, node *Node, kind redirectKind, addr string) bool {
	t := u.tries()
	if t.redirects++; t.redirects > maxRedirects {
		return false
	}
	snapshot := e.c.Snapshot()
	target := snapshot.named(addr, node)
	if target == nil { // the node is new: the one that names it knows it
		e.c.await(ctx, e.c.refreshFrom(node))
		snapshot = e.c.Snapshot()
		target = snapshot.named(addr, node)
	}
	if target == nil {
		u.node, u.ask = nil, false
		return e.later(u, 20*time.Millisecond)
	}
	u.node, u.ask = target, kind == asked
	if u.ask {
		e.c.count.asked.Add(1)
	} else {
		e.c.count.moved.Add(1)
	}
	if kind == moved && snapshot.Owner(u.slot) != target {
		e.c.refreshFrom(node)
	}
	if t.redirects > 3 { // nodes that disagree need a moment, not more questions
		return e.later(u, 5*time.Millisecond)
	}
	return true
}

// mostRepeats is how often a script that changes nothing is sent again to learn whether a refusal is the script's own.
const mostRepeats = 8

// again makes the unit of such a script go to node once more; false: it has been sent often enough.
func (e *Executor) again(u *unit, node *Node) bool {
	t := u.tries()
	t.repeats++
	u.node = node
	return t.repeats <= mostRepeats && e.later(u, time.Millisecond)
}

// probe asks node for the unit's keys with EXISTS, as the service account, and returns what Redis says of the slot. A node that does not
// answer is asked again for Options.RetryFor, all questions of a Do together: without an answer the client would be given the redirect.
func (e *Executor) probe(ctx context.Context, u *unit, node *Node) (kind redirectKind, slot int, addr string) {
	cmd := resp.AppendArray(nil, 1+u.count())
	cmd = resp.AppendBulkString(cmd, "EXISTS")
	for i := range u.count() {
		cmd = resp.AppendBulk(cmd, u.key(i))
	}
	cmds := [][]byte{cmd}
	if u.ask {
		cmds = [][]byte{asking, cmd}
	}
	if e.round.probeUntil.IsZero() {
		e.round.probeUntil = time.Now().Add(e.c.opts.RetryFor)
	}
	pause := retry.Backoff{First: 20 * time.Millisecond, Most: 200 * time.Millisecond}
	for {
		reply, err := e.askNode(ctx, node, cmds...)
		if err == nil {
			return readRedirect(reply.Raw)
		}
		if time.Now().After(e.round.probeUntil) || !retry.Sleep(ctx, pause.Next(), nil) {
			return noRedirect, noSlot, ""
		}
	}
}

// askNode sends commands to a node as the service account, and returns the last one's reply.
func (e *Executor) askNode(ctx context.Context, node *Node, cmds ...[]byte) (last resp.Reply, err error) {
	p, err := node.up.Open(ctx, e.c.account())
	if err != nil {
		return last, err
	}
	defer p.Release()
	got, err := p.Ask(&upstream.Request{Cmds: cmds}, askTimeout)
	if err != nil {
		return last, &upstream.NotSentError{Cause: err} // of the client's command nothing was
	}
	replies, err := takeApart(got)
	if err != nil {
		return last, err
	}
	return replies[len(replies)-1], nil
}
