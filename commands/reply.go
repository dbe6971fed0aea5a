package commands

import (
	"bytes"
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
		// The client has closed its half of the connection, and may read on, as ioredis does.
		return resp.AppendError(out, "UNBLOCKED the connection ended while it waited")
	default:
		// An error of upstream, whose text says what is known.
		return resp.AppendError(out, "ERR "+err.Error())
	}
}

// What clients have sent may have any bytes. It is shown in one of these ways:
//   - in errors with the words of Redis' own errors by quote or Clip, as Redis shows it;
//   - in syntax errors of lock verbs by syntaxNear, which writes out every byte that is not printable ASCII;
//   - names of locks in errors of the engine by lockstore.Printable;
//   - names of locks on the page and in top by package display.
//
// A line end never gets into an error, whichever way it is shown: see resp.AppendError.

// quote is what most errors of Redis show of an argument: its bytes up to the first zero byte.
func quote(word []byte) string { return Clip(word, len(word)) }

// ClipMost is how many bytes of an argument those errors of Redis show that limit it.
const ClipMost = 128

// Clip is quote for the errors in which Redis limits what it shows to so many bytes.
func Clip(word []byte, most int) string {
	word, _, _ = bytes.Cut(word, []byte{0})
	return string(word[:min(len(word), most)])
}

func appendSyntax(out []byte, err error) []byte { return resp.AppendError(out, err.Error()) }
