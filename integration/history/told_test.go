package history

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/history"
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
	r.Working.Go(func() {
		for i := 0; !r.over.Load() && !r.Blamed(); i++ {
			r.cutOff(i)
		}
	})
}

// cutOff has one holder lose all of its locks.
func (r *round) cutOff(i int) {
	h := r.hear()
	defer h.close()
	var keys []string
	for j := range toldHeld { // every other one has a LIMIT, of one
		key := fmt.Sprintf("t%d.%d", i, j)
		if h.ask(&history.Op{Verb: "LOCK", Keys: []string{key}, Block: -1, Limit: int64(j % 2)}).Outcome != history.OK {
			return // it is not connected to Redis again
		}
		keys = append(keys, key)
	}
	var rivals sync.WaitGroup
	for j, key := range keys[:toldWanted] {
		rivals.Go(func() { r.rival(key, int64(j%2), h) })
	}
	time.Sleep(time.Duration(r.Clients[0].Dice.Int64N(int64(r.p.watchdog) / 2)))
	r.proxies[0].wire.BlackHole()
	rivals.Wait()
	r.proxies[0].wire.Clear()
	r.loseOthers()
	for _, key := range keys[:toldWanted] {
		if o := h.ask(&history.Op{Verb: "UNLOCK", Keys: []string{key}}); o.Code != "LOCKLOST" {
			r.Blame(history.Violation{Oracle: "told", Key: key, Ops: []*history.Op{o}, Text: "it was lost, and this is not told any more"})
		}
	}
}

// rival waits for a lock that another one holds.
func (r *round) rival(key string, limit int64, h *hearer) {
	c := r.Clients[1]
	l := c.Dial(1)
	if l == nil {
		return
	}
	defer c.Leave(l, false)
	o := c.Do(l, &history.Op{Verb: "LOCK", Keys: []string{key}, Block: 20000, Limit: limit})
	if o.Outcome != history.OK {
		return
	}
	slack := time.Duration(0)
	if *length < 5*time.Second { // a short run has the machine not for itself: what is told may be late
		slack = 3 * time.Second
	}
	at, told := h.toldAt(key)
	for end := time.Now().Add(slack); !told && time.Now().Before(end); at, told = h.toldAt(key) {
		time.Sleep(5 * time.Millisecond)
	}
	if !told || at > o.Return+slack.Nanoseconds() {
		c.Blame(history.Violation{Oracle: "told", Key: key, Ops: []*history.Op{o}, Text: "the one who held it has not been told of the loss by then"})
	}
	c.Do(l, &history.Op{Verb: "UNLOCK", Keys: []string{key}})
}

// loseOthers has another client of the first proxy lose locks of its own.
func (r *round) loseOthers() {
	c, err := redis.Dial("tcp", r.proxies[0].addr)
	if err != nil {
		return
	}
	defer c.Close()
	for i := range toldOthers {
		if _, err := redis.String(c.Do("LOCK", fmt.Sprint("other", i), "PX", 1)); err != nil {
			time.Sleep(10 * time.Millisecond) // Redis is not back
		}
	}
	time.Sleep(50 * time.Millisecond)
}

// hearer is a holder in RESP3, which is told of losses.
type hearer struct {
	*history.Client
	w       *harness.Wire
	n       int
	replies chan string
	gone    chan struct{}

	mu   sync.Mutex
	told map[string]int64
}

// hear connects a holder to the first proxy.
func (r *round) hear() *hearer {
	h := &hearer{Client: r.Clients[0], w: harness.DialHearing(r.t, r.proxies[0].addr), n: r.Conn(), replies: make(chan string),
		gone: make(chan struct{}), told: map[string]int64{}}
	go h.listen()
	return h
}

func (h *hearer) listen() {
	defer close(h.gone)
	for {
		frame, err := h.w.TryRead(2 * history.NoReply)
		if err != nil {
			return
		}
		if !strings.HasPrefix(frame, ">") {
			h.replies <- frame
			continue
		}
		h.mu.Lock()
		h.told[strings.Split(frame, "\r\n")[4]] = h.Now()
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
func (h *hearer) ask(o *history.Op) *history.Op {
	o.Conn, o.Owner = h.n, history.ConnOwner(h.n)
	var words []string
	for _, w := range o.Command() {
		words = append(words, fmt.Sprint(w))
	}
	h.Begin(o)
	if err := h.w.TrySend(words...); err != nil {
		h.Conclude(o, nil, err)
		return o
	}
	select {
	case frame := <-h.replies:
		switch text := strings.TrimSpace(frame[1:]); frame[0] {
		case '-':
			h.Conclude(o, nil, history.Refused(text))
		case ':':
			h.Conclude(o, int64(text[0]-'0'), nil)
		case '_':
			h.Conclude(o, nil, nil)
		default:
			h.Conclude(o, text, nil)
		}
	case <-h.gone:
		h.Conclude(o, nil, fmt.Errorf("the connection was closed"))
	}
	return o
}

// close hangs up.
func (h *hearer) close() {
	o := &history.Op{Conn: h.n, Verb: "CLOSE", Owner: history.ConnOwner(h.n), Outcome: history.OK}
	h.Begin(o)
	h.w.Close()
	h.End(o)
	<-h.gone
}
