package commands

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// ErrUnblocked ends a wait as CLIENT UNBLOCK … ERROR does, when it is the cause of the context's end.
var ErrUnblocked error = &upstream.ReplyError{Line: "UNBLOCKED client unblocked via CLIENT UNBLOCK"}

// appendFailure is the one place where an error becomes an error reply.
func appendFailure(out []byte, proto int, err error) []byte {
	var own *lock.Error
	var redis *upstream.ReplyError
	switch {
	case errors.Is(err, lock.ErrNotAcquired):
		return resp.AppendNull(out, proto)
	case errors.As(err, &own):
		return resp.AppendError(out, own.Error())
	case errors.As(err, &redis):
		return resp.AppendError(out, redis.Line)
	case errors.Is(err, context.Canceled):
		// The client has gone; nobody reads this.
		return resp.AppendError(out, "UNBLOCKED the connection ended while it waited")
	default:
		// An error of upstream, whose text says what is known.
		return resp.AppendError(out, "ERR "+err.Error())
	}
}

func appendSyntax(out []byte, err error) []byte { return resp.AppendError(out, err.Error()) }
