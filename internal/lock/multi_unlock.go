package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// MultiUnlock gives back one hold at each of keys, the last one in MultiLock's order first; a key named twice counts once.
// r names the database and the owner. freed is the number of locks that are now free of this owner: one that it entered more
// often is not among them.
//
// A lock that the owner does not hold is passed over. None is left out because of another: the error says afterwards what was
// wrong, LOCKLOST before anything else, else the first of Unlock's errors. NOTHELD means that the owner held none of them.
func (c *Client) MultiUnlock(ctx context.Context, keys []string, r UnlockRequest) (freed int64, err error) {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "MULTIUNLOCK")
	defer span.End()
	freed, err = c.multiUnlock(ctx, keys, r)
	telemetry.VerbDone(ctx, "multiunlock", outcomeWord(err), time.Since(began))
	return freed, err
}

func (c *Client) multiUnlock(ctx context.Context, keys []string, r UnlockRequest) (freed int64, err error) {
	var lost, failed, absent error
	held := false
	for _, key := range slices.Backward(canonical(keys)) {
		free, err := c.unlock(ctx, UnlockRequest{DB: r.DB, Key: key, Owner: r.Owner})
		switch {
		case err == nil:
			held = true
			if free {
				freed++
			}
		case isCode(err, "NOTHELD"):
			absent = err
		case isCode(err, "LOCKLOST"):
			lost = err
		default:
			failed = err
		}
	}
	switch {
	case lost != nil:
		return freed, lost
	case held && isNotSent(failed): // as it is it would say that nothing was done
		return freed, &Error{"ERR", fmt.Sprintf("not released: some of these locks have been given back, of another one %v", failed)}
	case failed != nil:
		return freed, failed
	case !held:
		return 0, absent // of the first key
	}
	return freed, nil
}

func isCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
