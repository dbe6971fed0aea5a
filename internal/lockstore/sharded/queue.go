package sharded

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// RefreshQueue sends the script that tells which waiters are alive.
func (d *store) RefreshQueue(q lockstore.Queue) (called []int64, next time.Duration, err error) {
	out, _, _, err := d.inTime(untilGivenUp, func(l limits, text string, _ int64) ([]int64, error) {
		return node.Ints(d.eval(context.Background(), l, d.steps.Refresh(q, text)))
	})
	if err != nil {
		return nil, 0, err
	}
	return out[1:], lockstore.Milliseconds(out[0]), nil
}

// LeaveQueue takes an owner out of a fair queue. If Redis cannot be told, the place there ends after 10 s.
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

// leaveLater leaves the queue when Redis is in reach again. After 10 s the place no longer counts.
func (d *store) leaveLater(id lockstore.ID, stays func() bool) {
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) && d.host.Sleep(context.Background(), retry.Around(node.MaxPause)) && !stays() {
		if !lockstore.NotSent(d.sendLeave(id)) {
			return
		}
	}
}

// sendLeave asks again when Redis got to it too late, after a pause of its writes for example: nobody else will.
func (d *store) sendLeave(id lockstore.ID) error {
	err := d.idempotent(func() (int64, error) {
		_, _, at, err := d.inTime(untilGivenUp, func(l limits, text string, _ int64) ([]int64, error) {
			return node.Ints(d.eval(context.Background(), l, d.steps.Leave(id, text)))
		})
		return at, err
	})
	if err != nil {
		d.host.Log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}
