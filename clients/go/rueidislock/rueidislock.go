// Package rueidislock takes lockproxy's locks by rueidis.
package rueidislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// Locks returns the locks that are reached by c. rueidis sends a command that may wait over a connection of its own,
// so waiters do not use up what the program's other commands need; ClientOption.BlockingPoolSize, 1,024 at first,
// bounds how many sections may wait at once.
func Locks(c rueidis.Client) *lockproxy.Locks {
	return &lockproxy.Locks{
		Dial: func(answer time.Duration, alone bool) (lockproxy.Conn, error) {
			if alone {
				return &dedicated{client: c, answer: answer}, nil
			}
			return conn{c, answer}, nil // a named owner's lock is no connection's
		},
		IsReply: isReply,
		Close:   func() error { return nil }, // they are c's
	}
}

func isReply(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && !reply.IsNil()
}

// dedicated is a connection for one section alone, from rueidis' pool.
type dedicated struct {
	client   rueidis.Client
	answer   time.Duration
	one      rueidis.DedicatedClient // nil: none yet, or the last one was closed
	giveBack func()
}

// Do implements lockproxy.Conn. One from the pool may have been closed while nobody used it, and rueidis would go on to
// use it: the next question has another.
func (d *dedicated) Do(ctx context.Context, words ...any) (any, error) {
	if d.one == nil {
		d.one, d.giveBack = d.client.Dedicate()
	}
	answer, err := conn{d.one, d.answer}.Do(ctx, words...)
	if err != nil && !isReply(err) {
		d.one.Close()
		d.one = nil
	}
	return answer, err
}

// Close implements lockproxy.Conn.
func (d *dedicated) Close(drop bool) {
	switch {
	case d.one == nil:
	case drop:
		d.one.Close()
	default:
		d.giveBack()
	}
}

// conn is a rueidis client, which chooses the connection, or a dedicated one.
type conn struct {
	client rueidis.CoreClient
	answer time.Duration
}

// Do implements lockproxy.Conn.
func (c conn) Do(ctx context.Context, words ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.answer)
	defer cancel()
	args := make([]string, len(words))
	waits := false
	for i, word := range words {
		args[i] = fmt.Sprint(word)
		waits = waits || word == "BLOCK"
	}
	asked := c.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...)
	build := asked.Build
	if waits {
		build = asked.Blocking
	}
	answer, err := c.client.Do(ctx, build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return answer, err
}

// Close implements lockproxy.Conn.
func (c conn) Close(bool) {}
