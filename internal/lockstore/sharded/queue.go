package sharded

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/scripts"
)

// RefreshQueue sends the script that says who lives.
func (d *store) RefreshQueue(q lockstore.Queue) (called []int64, next time.Duration, err error) {
	text, _, err := d.notAfter(usual.allow)
	if err != nil {
		return nil, 0, err
	}
	out, err := node.Ints(d.eval(context.Background(), usual, d.steps.Refresh(q, text)))
	switch {
	case err != nil:
		return nil, 0, err
	case node.Late(out):
		_ = d.sample()
		return nil, 0, lockstore.ErrLate
	}
	return out[1:], lockstore.Milliseconds(out[0]), nil
}

// LeaveQueue takes an owner out of a fair queue. What Redis does not hear of is over there after 10 s.
func (d *store) LeaveQueue(id lockstore.ID, lost int64, stays func() bool) {
	if lost == 0 {
		if err := d.sendLeave(id); lockstore.NotSent(err) {
			d.host.Background(func() { d.leaveLater(id, stays) })
		}
		return
	}
	// A request without an answer may still put it there.
	d.host.Background(func() {
		now, lost := d.now(), d.final(lost)
		if d.host.Sleep(context.Background(), time.Duration(lost-now)*time.Microsecond+time.Millisecond) && !stays() {
			_ = d.sendLeave(id)
		}
	})
}

// leaveLater leaves the queue when Redis is in reach again. After 10 s the place counts no more.
func (d *store) leaveLater(id lockstore.ID, stays func() bool) {
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) && d.host.Sleep(context.Background(), retry.Around(node.MaxPause)) && !stays() {
		if !lockstore.NotSent(d.sendLeave(id)) {
			return
		}
	}
}

func (d *store) sendLeave(id lockstore.ID) error {
	err := d.idempotent(func() (int64, error) { return d.tryLeave(id) })
	if err != nil {
		d.host.Log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}

// tryLeave asks again when Redis came to it too late, as after a pause of its writes: nobody else will.
func (d *store) tryLeave(id lockstore.ID) (done int64, err error) {
	var tooLate error
	for try := range lateTries {
		l, sent := limits{notAfter << try, untilGivenUp}, time.Now()
		text, at, err := d.notAfter(l.allow)
		if err != nil {
			return 0, err
		}
		reply, err := d.eval(context.Background(), l, d.steps.Leave(id, text))
		if err != nil {
			return at, err
		}
		if code, err := reply.AsInt64(); err != nil || code != scripts.Late {
			return at, err
		}
		if tooLate = d.tooLate(time.Since(sent), l.allow); !errors.Is(tooLate, lockstore.ErrLate) {
			return at, tooLate
		}
	}
	return 0, tooLate
}
