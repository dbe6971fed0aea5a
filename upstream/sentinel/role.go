package sentinel

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	roleEvery   = time.Second           // how often the master is asked whether it is one
	roleTimeout = time.Second           // for an answer, connection included
	roleFresh   = 50 * time.Millisecond // how old an answer may be for a new connection
)

func notMaster(addr string) error { return fmt.Errorf("%s says it is not a master", addr) }

// probe is the connection on which the master is asked for its ROLE, as the service account, because clients' users may
// lack the right.
type probe struct {
	turn  chan struct{} // one slot: who has it may use what is below
	again chan struct{} // one slot: ask now

	conn net.Conn
	term *masterTerm
	said time.Time // when it last said that it is a master
}

func (p *probe) wake() { retry.Wake(p.again) }

// close closes the connection. The caller has the turn, or nobody asks any more.
func (p *probe) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// confirm asks the Redis of t whether it is a master, unless it said so less than roleFresh ago. One that says no is demoted.
func (f *Follower) confirm(ctx context.Context, t *masterTerm) error {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	p := &f.probe
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.term == t && time.Since(p.said) < roleFresh {
		return nil
	}
	master, err := f.role(ctx, t)
	switch {
	case upstream.Refused(err) != nil:
		// The service account may not ask Redis: then the Sentinels are believed. A replica answers writes with READONLY anyway.
		if !t.isConfirmed(f) {
			f.log.Warn("the master does not tell its ROLE to the user of --upstream", "addr", t.addr, "error", err)
		}
	case err != nil:
		return err
	case !master:
		f.demote(t)
		return notMaster(t.addr)
	}
	p.said = time.Now()
	f.mu.Lock()
	t.confirmed = true
	f.mu.Unlock()
	return nil
}

func (t *masterTerm) isConfirmed(f *Follower) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.confirmed
}

// role asks Redis for its ROLE; the caller has the turn. If Redis has closed the idle connection, a new one is made.
func (f *Follower) role(ctx context.Context, t *masterTerm) (master bool, err error) {
	p := &f.probe
	if p.term != t {
		p.close()
	}
	if p.conn != nil {
		if master, err = f.askRole(ctx); err == nil || upstream.Refused(err) != nil || ctx.Err() != nil {
			return master, err
		}
	}
	p.term = t
	if p.conn, _, err = upstream.Connect(ctx, f.at(t.addr), f.target.Service(), roleTimeout); err != nil {
		p.conn = nil
		return false, err
	}
	return f.askRole(ctx)
}

// askRole asks on the present connection, which stays if it is still of use.
func (f *Follower) askRole(ctx context.Context) (bool, error) {
	reply, err := upstream.Ask(ctx, f.probe.conn, time.Now().Add(roleTimeout), "ROLE")
	if err != nil {
		f.probe.close()
		return false, err
	}
	return bytes.Contains(reply[:min(len(reply), 20)], []byte("\r\nmaster\r\n")), upstream.ErrorIn(reply)
}

// watchRole asks the master every now and then, so that one that was demoted without a word from a Sentinel is noticed too.
func (f *Follower) watchRole() {
	defer f.running.Done()
	for retry.Sleep(f.ctx, roleEvery, f.probe.again) || f.ctx.Err() == nil {
		f.mu.Lock()
		now := f.now
		f.mu.Unlock()
		if now != nil {
			ctx, giveUp := context.WithCancel(f.ctx)
			stop := context.AfterFunc(now.ctx, giveUp)
			_ = f.confirm(ctx, now) // confirm itself demotes a master that is none
			stop()
			giveUp()
		}
	}
}
