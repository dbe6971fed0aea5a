package world

import (
	"io"
	"sort"

	"github.com/alicebob/miniredis/v2/server"
)

const (
	classic = iota
	sharded
)

var (
	kinds    = [2]string{"subscribe", "ssubscribe"}
	unkinds  = [2]string{"unsubscribe", "sunsubscribe"}
	messages = [2]string{"message", "smessage"}
)

// subscribe answers SUBSCRIBE and SSUBSCRIBE: a confirmation for each channel.
func subscribe(kind int) func(n *Node, s *session, args []string) {
	return func(n *Node, s *session, args []string) {
		for _, name := range args {
			s.channels[kind][name] = true
			s.confirm(kinds[kind], name, len(s.channels[kind]))
		}
	}
}

// unsubscribe answers UNSUBSCRIBE and SUNSUBSCRIBE, for all channels when none is named.
func unsubscribe(kind int) func(n *Node, s *session, args []string) {
	return func(n *Node, s *session, args []string) {
		if len(args) == 0 {
			for name := range s.channels[kind] {
				args = append(args, name)
			}
			sort.Strings(args)
		}
		for _, name := range args {
			delete(s.channels[kind], name)
			s.confirm(unkinds[kind], name, len(s.channels[kind]))
		}
	}
}

func (s *session) confirm(kind, name string, count int) {
	s.peer.Block(func(w *server.Writer) {
		w.WritePushLen(3)
		w.WriteBulk(kind)
		w.WriteBulk(name)
		w.WriteInt(count)
	})
}

// publish puts a message into the output of all that are subscribed to the channel; deliver sends it. mu is held.
func (n *Node) publish(kind int, name, text string) int {
	count := 0
	for _, other := range n.subscribedAt(kind, name) {
		for c := range other.conns {
			if c.served == nil || !c.served.channels[kind][name] {
				continue
			}
			count++
			c.pushed = append(c.pushed, push(c.served, messages[kind], name, text)...)
			other.dirty = append(other.dirty, c)
		}
	}
	return count
}

// DropSubscribers ends the connections that have subscriptions, as CLIENT KILL TYPE pubsub does.
func (n *Node) DropSubscribers() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for c := range n.conns {
		if s := c.served; s != nil && len(s.channels[classic])+len(s.channels[sharded]) > 0 {
			c.end(io.EOF)
		}
	}
}

// subscribedAt are the nodes whose clients get what is published here: in a cluster those of all nodes get a message of a classic channel.
func (n *Node) subscribedAt(kind int, _ string) []*Node {
	if n.cluster == nil || kind == sharded {
		return []*Node{n}
	}
	return n.cluster.nodes
}

// push is a message as a session gets it.
func push(s *session, words ...string) []byte {
	var out session
	out.peer = newPeer(&out)
	out.peer.Resp3 = s.peer.Resp3
	out.peer.Block(func(w *server.Writer) {
		w.WritePushLen(len(words))
		for _, word := range words {
			w.WriteBulk(word)
		}
	})
	return []byte(out.take())
}

// deliver sends what was published. mu is held.
func (n *Node) deliver(what string) {
	nodes := []*Node{n}
	if n.cluster != nil {
		nodes = n.cluster.nodes
	}
	for _, other := range nodes {
		for _, c := range other.dirty {
			b := c.pushed
			c.pushed = nil
			c.deliver(b, what)
		}
		other.dirty = other.dirty[:0]
	}
}

// numsub answers PUBSUB NUMSUB and SHARDNUMSUB.
func (n *Node) numsub(kind int, names []string) (counts []int) {
	for _, name := range names {
		count := 0
		for c := range n.conns {
			if c.served != nil && c.served.channels[kind][name] {
				count++
			}
		}
		counts = append(counts, count)
	}
	return counts
}
