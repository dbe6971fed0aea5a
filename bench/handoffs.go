package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/scripts"
)

// leastHandoffs is the least proxy for one lock that its clients want: they wait in a line, and an UNLOCK is one script in Redis that
// gives the lock to the first of them. Nobody else wants it, no lease ends, no reply is lost, and it ends when Redis does.
func leastHandoffs(listen string, redis []string) error {
	c, err := dial(context.Background(), redis[0])
	if err != nil {
		return err
	}
	for _, script := range []*scripts.Script{scripts.Acquire, scripts.Release, scripts.Handoff} {
		if err := c.all([][]byte{command("SCRIPT", "LOAD", script.Source)}, "$40"); err != nil {
			return err
		}
	}
	h := &handoffs{redis: c}
	return accept(listen, h.serve)
}

type handoffs struct {
	redis   *client // the holder asks it; who takes or frees the lock, under mu
	mu      sync.Mutex
	held    bool
	line    []*waiter
	clients int // now
	last    int // number of a client
}

// waiter is a client, and with it its owner.
type waiter struct {
	*client
	owner string
}

func (h *handoffs) serve(conn net.Conn) {
	defer conn.Close()
	w := &waiter{client: &client{Conn: conn, r: bufio.NewReader(conn)}}
	h.mu.Lock()
	h.last++
	h.clients++
	w.owner = fmt.Sprintf("00000000-0000-0000-0000-000000000000:%d", h.last)
	h.mu.Unlock()
	err := error(nil)
	for said := []byte(nil); err == nil; {
		said, err = w.reply() // a command has the form of a reply
		switch {
		case err != nil:
		case bytes.Contains(said, []byte("UNLOCK")):
			err = h.unlock(w)
		case bytes.Contains(said, []byte("LOCK")):
			err = h.lock(w)
		default:
			_, err = w.Write([]byte("$-1\r\n"))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients--; h.clients == 0 { // the next measurement has other clients, and a Redis that is empty
		h.held, h.line = false, nil
	}
}

func (h *handoffs) lock(w *waiter) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.line = append(h.line, w)
		return nil
	}
	h.held = true
	return h.run(scripts.Acquire, taking(w.owner), granted, w, "+OK\r\n")
}

func (h *handoffs) unlock(w *waiter) error {
	h.mu.Lock()
	if len(h.line) == 0 {
		defer h.mu.Unlock()
		h.held = false
		return h.run(scripts.Release, freeing(w.owner), freed, w, freed)
	}
	next := h.line[0]
	h.line = h.line[1:]
	h.mu.Unlock()
	args := slices.Concat([]string{"redisson_lock__channel:{bench:least}", "", "PUBLISH", ""}, freeing(w.owner), taking(next.owner))
	if err := h.run(scripts.Handoff, args, handedOn, next, "+OK\r\n"); err != nil {
		return err
	}
	_, err := w.Write([]byte(freed))
	return err
}

// run runs a script, and writes a reply if it has done what it is to do.
func (h *handoffs) run(script *scripts.Script, args []string, want string, to *waiter, reply string) error {
	if err := (exchange{onLock(script, "bench:least", args), want}).do(h.redis); err != nil {
		return err
	}
	_, err := to.Write([]byte(reply))
	return err
}
