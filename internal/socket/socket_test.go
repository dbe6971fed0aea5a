package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair is two ends of one connection, of which the first is direct where that is possible.
func pair(t *testing.T, network string) (direct, other net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	direct = Direct(accepted)
	t.Cleanup(func() { direct.Close(); dialled.Close() })
	return direct, dialled
}

func everyNetwork(t *testing.T, test func(t *testing.T, direct, other net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			direct, other := pair(t, network)
			test(t, direct, other)
		})
	}
}

// What is written comes whole and in order, in whichever sizes, also when the other side reads late.
func TestBytesComeAsTheyWere(t *testing.T) {
	everyNetwork(t, func(t *testing.T, direct, other net.Conn) {
		sent := make([]byte, 9<<20)
		for i := range sent {
			sent[i] = byte(i * 7 >> 3)
		}
		for _, way := range []struct{ from, to net.Conn }{{direct, other}, {other, direct}} {
			var group sync.WaitGroup
			group.Go(func() {
				for rest, size := sent, 1; len(rest) > 0; size = (size*3 + 1) % 200_000 {
					n, err := way.from.Write(rest[:min(size, len(rest))])
					if err != nil {
						t.Error(n, err)
						return
					}
					rest = rest[n:]
				}
			})
			time.Sleep(20 * time.Millisecond) // until the sender has to wait
			got := make([]byte, 0, len(sent))
			for piece := make([]byte, 1<<20); len(got) < len(sent); {
				n, err := way.to.Read(piece[:len(got)%100_000+1])
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, piece[:n]...)
			}
			if !bytes.Equal(got, sent) {
				t.Error("other bytes than were sent")
			}
			group.Wait()
		}
	})
}

// Ends, deadlines and errors are those of package net.
func TestEndsOfReadsAndWrites(t *testing.T) {
	everyNetwork(t, func(t *testing.T, direct, other net.Conn) {
		b := make([]byte, 100)
		if n, err := direct.Read(nil); n != 0 || err != nil {
			t.Error(n, err)
		}
		direct.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		var timeout net.Error
		if n, err := direct.Read(b); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(n, err)
		}
		direct.SetReadDeadline(time.Time{})
		time.AfterFunc(10*time.Millisecond, func() { direct.SetReadDeadline(time.Unix(1, 0)) })
		if _, err := direct.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		direct.SetReadDeadline(time.Time{})
		other.Write([]byte("last"))
		other.(interface{ CloseWrite() error }).CloseWrite()
		if n, err := direct.Read(b); string(b[:n]) != "last" || err != nil {
			t.Error(n, err)
		}
		if n, err := direct.Read(b); n != 0 || err != io.EOF {
			t.Error(n, err)
		}

		direct.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		wrote, err := 0, error(nil)
		for n := 0; err == nil; wrote += n {
			n, err = direct.Write(make([]byte, 60_000))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || wrote == 0 {
			t.Error(wrote, err)
		}
		direct.SetWriteDeadline(time.Time{})
		other.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := io.CopyN(io.Discard, other, int64(wrote)); err != nil { // a write that ended early has said how much it wrote
			t.Error(n, wrote, err)
		}
		other.Close()
		for err = nil; err == nil; {
			_, err = direct.Write(b)
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "write" || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		time.AfterFunc(10*time.Millisecond, func() { direct.Close() })
		for err = io.EOF; err == io.EOF; time.Sleep(time.Millisecond) {
			_, err = direct.Read(b)
		}
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

// Closing ends a read and a write that wait.
func TestCloseEndsWhoWaits(t *testing.T) {
	everyNetwork(t, func(t *testing.T, direct, _ net.Conn) {
		ended := make(chan error, 2)
		go func() { _, err := direct.Read(make([]byte, 1)); ended <- err }()
		go func() {
			var err error
			for err == nil {
				_, err = direct.Write(make([]byte, 50_000))
			}
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond)
		direct.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// Writers that come at once do not write into each other's bytes.
func TestWritersTakeTurns(t *testing.T) {
	everyNetwork(t, func(t *testing.T, direct, other net.Conn) {
		const writers, times, size = 8, 50, 40_000
		for i := range writers {
			go func() {
				for range times {
					direct.Write(bytes.Repeat([]byte{byte('a' + i)}, size))
				}
			}()
		}
		piece := make([]byte, size)
		for range writers * times {
			if _, err := io.ReadFull(other, piece); err != nil || !bytes.Equal(piece, bytes.Repeat(piece[:1], size)) {
				t.Fatal("mixed: ", err)
			}
		}
	})
}

// What Direct makes can be taken for the socket, by those that look under it.
func TestUnderDirect(t *testing.T) {
	direct, _ := pair(t, "tcp")
	if _, ok := Plain(direct).(*net.TCPConn); !ok {
		t.Errorf("%T", Plain(direct))
	}
	one, _ := net.Pipe()
	if Direct(one) != one || Plain(one) != io.Writer(one) {
		t.Error("a pipe is no socket")
	}
}

// A read and a write allocate nothing.
func TestDirectAllocatesNothing(t *testing.T) {
	direct, other := pair(t, "tcp")
	b := make([]byte, 10)
	if n := testing.AllocsPerRun(200, func() {
		direct.Write(b)
		io.ReadFull(other, b)
		other.Write(b)
		io.ReadFull(direct, b)
	}); n > 0 {
		t.Error(n)
	}
}
