package session

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// pushQueue is how many bytes of losses may wait for a client that does not read: enough for all the locks that one
	// client can be expected to lose at once. Losses beyond it are not pushed; the lock verbs report them.
	pushQueue = 16 << 20
	// pushOverhead is what a loss takes in the queue beside the lock's name.
	pushOverhead = 64
)

// pushes are the losses that a client is to be told.
type pushes struct {
	to *client.Client

	mu     sync.Mutex // guards all below
	queue  []lock.Loss
	queued int           // what the queue takes, in bytes
	pusher chan struct{} // closed when the pusher at work has gone; nil: none at work
	closed bool          // no pushes any more
}

// queueLoss queues the news of a lost lock for a client that can take it. It never blocks: a pusher is started when
// there is something to write, and goes when there is nothing more.
func (p *pushes) queueLoss(l lock.Loss) {
	p.to.LostOne()
	p.mu.Lock()
	defer p.mu.Unlock()
	size := len(l.Key) + pushOverhead
	if p.closed || !takesLossPush(p.to) || p.queued+size > pushQueue {
		return
	}
	p.queue, p.queued = append(p.queue, l), p.queued+size
	if p.pusher == nil {
		p.pusher = make(chan struct{})
		go p.pushAll(p.pusher)
	}
}

// pushAll writes the queue, whole frames between whole replies. endPushing waits for it.
func (p *pushes) pushAll(gone chan<- struct{}) {
	defer close(gone)
	for more := true; more; {
		p.to.Writer.WriteLatest(func() (out []byte) {
			out, more = p.takePushes()
			return out
		})
	}
}

// takePushes returns the frames of what is queued, none if the client no longer takes pushes. more is false if nothing
// was queued: then the pusher ends. mu is not held while the frames are made.
func (p *pushes) takePushes() (out []byte, more bool) {
	queue, wanted := p.takeQueue()
	if !wanted { // not any more: the client has gone back to RESP2
		return nil, len(queue) > 0
	}
	for _, l := range queue {
		out = resp.AppendPush(out, 3, 4)
		out = resp.AppendBulkString(out, "lock-lost")
		out = resp.AppendBulkString(out, l.Key)
		out = resp.AppendBulkString(out, l.Kind.String())
		out = resp.AppendBulkString(out, l.Reason)
	}
	return out, len(queue) > 0
}

func (p *pushes) takeQueue() (queue []lock.Loss, wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue, p.queue, p.queued = p.queue, nil, 0
	if len(queue) == 0 {
		p.pusher = nil
	}
	return queue, takesLossPush(p.to)
}

// endPushing refuses more and waits for the pusher; the connection is closed by then, so that its write ends.
func (p *pushes) endPushing() {
	p.mu.Lock()
	p.closed = true
	p.queue, p.queued = nil, 0
	pusher := p.pusher
	p.mu.Unlock()
	if pusher != nil {
		<-pusher
	}
}

// lossPushLibraries are libraries, by the name they give with CLIENT SETINFO, that can tell such a push from a reply
// although they have not asked for pushes. Ruby's redis-client 0.30 and PHP's Predis 3.6 take it for one, and give each
// caller another's. Each needs a test in integration/clients.
var lossPushLibraries = []string{"go-redis", "ioredis", "jedis", "lettuce", "node-redis", "redis-py", "redis-rs"}

// takesLossPush says whether a lost lock may be pushed to a client.
func takesLossPush(c *client.Client) bool {
	if !c.TakesPushes() {
		return false
	}
	said := c.Said()
	library, _, _ := strings.Cut(said.Library[0], "(") // a library that builds upon it adds its own name in brackets
	return said.WantsLossPush || slices.Contains(lossPushLibraries, strings.ToLower(library))
}
