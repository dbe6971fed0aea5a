package sharded

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// RefreshQueue sends the script that tells which waiters are alive.
func (d *store) RefreshQueue(q lockstore.Queue) (called []int64, next time.Duration, err error) {
	out, err := d.step(context.Background(), 0, &request{key: q.Key, send: aside, again: untilGivenUp,
		build: func(at *shard, notAfter string) node.Call { return at.steps().Refresh(q, notAfter) }})
	if err != nil {
		return nil, 0, err
	}
	return out[1:], lockstore.Milliseconds(out[0]), nil
}

// LeaveQueue takes an owner out of a fair queue. If Redis cannot be told, the place there ends after 10 s.
//
// It waits until that is done, but no longer than notAfter: while Redis hangs, the end of the client's connection and
// the release of its other locks must not wait for it.
func (d *store) LeaveQueue(id lockstore.ID, final time.Time, stays func() bool) {
	if !time.Now().Before(final) {
		left := make(chan struct{})
		d.host.Background(func() { d.leaveOrLater(id, stays, left) })
		select {
		case <-left:
		case <-time.After(notAfter):
		}
		return
	}
	d.host.Background(func() { d.leaveAfter(final, id, stays) })
}

// leaveOrLater leaves the queue, or when Redis cannot be reached as soon as it can. After 10 s the place no longer counts. It closes left after the
// first try.
func (d *store) leaveOrLater(id lockstore.ID, stays func() bool, left chan<- struct{}) {
	end := time.Now().Add(10 * time.Second)
	err := d.sendLeave(id, stays)
	close(left)
	for lockstore.NotSent(err) && time.Now().Before(end) && d.host.Sleep(context.Background(), retry.Around(node.MaxPause)) {
		err = d.sendLeave(id, stays)
	}
}

// leaveAfter leaves the queue when a request without an answer can no longer put the owner there.
func (d *store) leaveAfter(final time.Time, id lockstore.ID, stays func() bool) {
	if d.host.Sleep(context.Background(), time.Until(final)) {
		_ = d.sendLeave(id, stays)
	}
}

// leaveFor is for how long a leave is sent again whose reply was lost: its place counts for 10 s.
const leaveFor = 5 * time.Second

// errBack is why a leave is not sent: the owner waits again, and its place is a new one.
var errBack = errors.New("the owner has come back")

// sendLeave sends the script, and again when Redis got to it after its not-after, for example because CLIENT PAUSE held
// it up: nobody else would send it. It sends nothing once the owner waits again.
func (d *store) sendLeave(id lockstore.ID, stays func() bool) error {
	send := func(s *shard, prepared node.Call, ask bool) ([]int64, error) {
		if stays() {
			return nil, errBack
		}
		return aside(s, prepared, ask)
	}
	_, err := d.step(context.Background(), leaveFor, &request{key: id.Key, send: send, again: untilGivenUp,
		build: func(at *shard, notAfter string) node.Call { return at.steps().Leave(id, notAfter) }})
	if errors.Is(err, errBack) {
		return nil
	}
	if err != nil {
		d.host.Log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}
