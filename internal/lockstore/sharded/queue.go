package sharded

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

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
//
// It waits until that is done, but not for a Redis that hangs: the client's own end, and what else it has, would wait with it.
func (d *store) LeaveQueue(id lockstore.ID, lost int64, stays func() bool) {
	if lost == 0 {
		left := make(chan struct{})
		d.host.Background(func() {
			err := d.sendLeave(id, stays)
			close(left)
			if lockstore.NotSent(err) {
				d.leaveLater(id, stays)
			}
		})
		select {
		case <-left:
		case <-time.After(notAfter):
		}
		return
	}
	// A request without an answer may still put it there.
	d.host.Background(func() {
		now, lost := d.now(), d.final(lost)
		if d.host.Sleep(context.Background(), time.Duration(lost-now)*time.Microsecond+time.Millisecond) {
			_ = d.sendLeave(id, stays)
		}
	})
}

// leaveLater leaves the queue when Redis is in reach again. After 10 s the place no longer counts.
func (d *store) leaveLater(id lockstore.ID, stays func() bool) {
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) && d.host.Sleep(context.Background(), retry.Around(node.MaxPause)) {
		if !lockstore.NotSent(d.sendLeave(id, stays)) {
			return
		}
	}
}

// errBack is why a leave is not sent: the owner waits again, and its place is a new one.
var errBack = errors.New("the owner has come back")

// sendLeave asks again when Redis got to it too late, after a pause of its writes for example: nobody else will. It does not when the
// owner has come back meanwhile.
func (d *store) sendLeave(id lockstore.ID, stays func() bool) error {
	send := func(s *shard, c node.Call, ask bool) (reply rueidis.RedisMessage, err error) {
		if stays() {
			return reply, errBack
		}
		return s.Eval(c, ask)
	}
	err := d.idempotent(func() (int64, error) {
		_, _, at, err := d.inTime(untilGivenUp, func(l limits, text string, _ int64) ([]int64, error) {
			return node.Ints(d.evalBy(context.Background(), l, d.steps.Leave(id, text), send))
		})
		return at, err
	})
	if errors.Is(err, errBack) {
		return nil
	}
	if err != nil {
		d.host.Log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}
