package history

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// The told oracle: who holds a lock hears of its loss before somebody else gets it through another proxy, and for as long as it stays
// connected its UNLOCK says so.

const (
	// toldHeld is how many locks one holder has, toldWanted how many of them others wait for.
	toldHeld, toldWanted = 40, 8
	// toldOthers is how many locks somebody else loses meanwhile.
	toldOthers = 300
)

// toldLosses cuts the first proxy off, over and over, with locks that clients of the second one wait for.
func toldLosses(r *round) {
	r.working.Go(func() {
		for i := 0; !r.over.Load() && !r.blamed(); i++ {
			r.cutOff(i)
		}
	})
}

// cutOff has one holder lose all of its locks.
func (r *round) cutOff(i int) {
	h := r.clients[0].hear(r)
	defer h.close()
	var keys []string
	for j := range toldHeld {
		key := fmt.Sprintf("t%d.%d", i, j)
		if h.ask(&op{Verb: "LOCK", Keys: []string{key}, Block: -1}).Outcome != ok {
			return // it is not connected to Redis again
		}
		keys = append(keys, key)
	}
	var rivals sync.WaitGroup
	for _, key := range keys[:toldWanted] {
		rivals.Go(func() { r.clients[1].rival(key, h) })
	}
	time.Sleep(time.Duration(r.clients[0].dice.Int64N(int64(r.p.watchdog) / 2)))
	r.proxies[0].wire.BlackHole()
	rivals.Wait()
	r.proxies[0].wire.Clear()
	r.clients[0].loseOthers()
	for _, key := range keys[:toldWanted] {
		if o := h.ask(&op{Verb: "UNLOCK", Keys: []string{key}}); o.Code != "LOCKLOST" {
			r.blame(violation{Oracle: "told", Key: key, Ops: []*op{o}, Text: "it was lost, and this is not told any more"})
		}
	}
}

// rival waits for a lock that another one holds.
func (c *client) rival(key string, h *hearer) {
	l := c.dial(1)
	if l == nil {
		return
	}
	defer c.end(l, false)
	o := c.do(l, &op{Verb: "LOCK", Keys: []string{key}, Block: 20000})
	if o.Outcome != ok {
		return
	}
	if at, told := h.toldAt(key); !told || at > o.Return {
		c.blame(violation{Oracle: "told", Key: key, Ops: []*op{o}, Text: "the one who held it has not been told of the loss by then"})
	}
	c.do(l, &op{Verb: "UNLOCK", Keys: []string{key}})
}

// loseOthers has another client of the first proxy lose locks of its own.
func (c *client) loseOthers() {
	l := c.dial(0)
	if l == nil {
		return
	}
	defer func() { _ = l.tcp.Close() }()
	for i := range toldOthers {
		if _, err := redis.String(l.c.Do("LOCK", fmt.Sprint("other", i), "PX", 1)); err != nil {
			time.Sleep(10 * time.Millisecond) // Redis is not back
		}
	}
	time.Sleep(50 * time.Millisecond)
}

// hearer is a holder in RESP3, which is told of losses.
type hearer struct {
	*client
	w       *harness.Wire
	n       int
	replies chan string
	gone    chan struct{}

	mu   sync.Mutex
	told map[string]int64
}

// hear connects a holder to the first proxy.
func (c *client) hear(r *round) *hearer {
	h := &hearer{client: c, w: harness.DialHearing(r.t, c.addrs[0]), n: int(c.conns.Add(1)), replies: make(chan string),
		gone: make(chan struct{}), told: map[string]int64{}}
	go h.listen()
	return h
}

func (h *hearer) listen() {
	defer close(h.gone)
	for {
		frame, err := h.w.TryRead(2 * noReply)
		if err != nil {
			return
		}
		if !strings.HasPrefix(frame, ">") {
			h.replies <- frame
			continue
		}
		h.mu.Lock()
		h.told[strings.Split(frame, "\r\n")[4]] = h.now()
		h.mu.Unlock()
	}
}

func (h *hearer) toldAt(key string) (at int64, told bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, told = h.told[key]
	return at, told
}

// ask sends o and waits for its reply.
func (h *hearer) ask(o *op) *op {
	o.Conn, o.Owner = h.n, connOwner(h.n)
	var words []string
	for _, w := range o.command() {
		words = append(words, fmt.Sprint(w))
	}
	h.begin(o)
	if err := h.w.TrySend(words...); err != nil {
		h.conclude(o, nil, err)
		return o
	}
	select {
	case frame := <-h.replies:
		switch text := strings.TrimSpace(frame[1:]); frame[0] {
		case '-':
			h.conclude(o, nil, redis.Error(text))
		case ':':
			h.conclude(o, int64(text[0]-'0'), nil)
		case '_':
			h.conclude(o, nil, nil)
		default:
			h.conclude(o, text, nil)
		}
	case <-h.gone:
		h.conclude(o, nil, fmt.Errorf("the connection was closed"))
	}
	return o
}

// close hangs up.
func (h *hearer) close() {
	o := &op{Conn: h.n, Verb: "CLOSE", Owner: connOwner(h.n), Outcome: ok}
	h.begin(o)
	h.w.Close()
	h.client.mu.Lock()
	o.Return = h.now()
	h.client.mu.Unlock()
	<-h.gone
}
