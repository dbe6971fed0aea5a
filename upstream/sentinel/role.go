package sentinel

import (
	"bytes"
	"context"
	"fmt"
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

// probe is where the master is asked for its ROLE, as the service account, because clients' users may lack the right.
type probe struct {
	turn  chan struct{} // one slot: the goroutine that has it may use what is below
	again chan struct{} // one slot: ask now

	asker     *upstream.Asker // of term's master; nil: none was asked yet
	term      *upstream.Term
	confirmed bool      // term's master has said that it is one, or may not be asked
	said      time.Time // when it last said so
}

func (p *probe) wake() { retry.Wake(p.again) }

// closeConn closes the connection. The caller has the turn, or nobody asks any more.
func (p *probe) closeConn() {
	if p.asker != nil {
		p.asker.Close()
	}
}

// of makes the probe one of that term's master. The caller has the turn.
func (p *probe) of(t *upstream.Term, target upstream.Target) {
	if p.term == t {
		return
	}
	p.closeConn()
	p.term, p.asker = t, upstream.NewAsker(target, roleTimeout)
	p.confirmed, p.said = false, time.Time{}
}

// confirm asks the Redis of t whether it is a master, unless it said so less than roleFresh ago. One that says no is
// demoted.
func (f *Follower) confirm(ctx context.Context, t *upstream.Term) error {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	p := &f.probe
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.of(t, f.at(t.Addr))
	if time.Since(p.said) < roleFresh {
		return nil
	}
	master, err := p.role(ctx)
	switch {
	case upstream.Refused(err) != nil:
		// The service account may not ask Redis: then the Sentinels are believed. A replica answers writes with
		// READONLY anyway.
		if !p.confirmed {
			f.log.Warn("the master does not tell its ROLE to the user of --upstream", "addr", t.Addr, "error", err)
		}
	case err != nil:
		return err
	case !master:
		f.demote(t)
		return notMaster(t.Addr)
	}
	p.said, p.confirmed = time.Now(), true
	return nil
}

// demote ends all connections to a master that says that it is a master no longer. Connections are still tried at its
// address, and its role is asked each time, until the Sentinels name another master. One that has never said that it is
// a master has none yet.
func (f *Follower) demote(t *upstream.Term) {
	if f.probe.confirmed && f.End(t, t.Addr, false, notMaster(t.Addr)) {
		f.log.Warn("the master says that it is a master no longer, its connections are closed", "addr", t.Addr)
	}
}

// role asks the master for its ROLE.
func (p *probe) role(ctx context.Context) (master bool, err error) {
	reply, err := p.asker.Ask(ctx, "ROLE")
	if err != nil {
		return false, err
	}
	return bytes.Contains(reply[:min(len(reply), 20)], []byte("\r\nmaster\r\n")), upstream.ErrorIn(reply)
}

// watchRole asks the master every now and then, so that one that was demoted without a word from a Sentinel is noticed
// too.
func (f *Follower) watchRole() {
	defer f.running.Done()
	for retry.Sleep(f.ctx, roleEvery, f.probe.again) || f.ctx.Err() == nil {
		if now, _ := f.Now(); now != nil {
			ctx, giveUp := context.WithCancel(f.ctx)
			stop := context.AfterFunc(now, giveUp)
			_ = f.confirm(ctx, now) // confirm itself demotes a master that is none
			stop()
			giveUp()
		}
	}
}
