package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A server that does not answer a question in time has timed out, whichever of the two deadlines comes first: SCRIPT KILL asks again then.
func TestExchangeTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go io.Copy(io.Discard, there)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if replies, err := Exchange(ctx, here, []byte("*1\r\n$4\r\nROLE\r\n"), 1, longestAnswer); len(replies) > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(replies, err)
		}
		here.Close()
	})
}
