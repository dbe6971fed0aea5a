package webserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// serve runs a server at a free address.
func serve(t *testing.T, secure *tls.Config, h http.HandlerFunc) (s *Server, addr string) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = New(Options{Name: "a test", Handler: h, WriteTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	s.Start(ln, secure)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx) // cuts what a test has left
	})
	return s, ln.Addr().String()
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// connect opens a connection and says something on it.
func connect(t *testing.T, addr, says string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, says); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c
}

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// answered reads the answer to a request.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != nil || string(text) != "ok" {
		t.Fatalf("%q, %v", text, err)
	}
}

// Whatever those do who have no request at work: the next one is answered at once.
func TestAnswersBesideSilentConnections(t *testing.T) {
	_, addr := serve(t, nil, ok)
	for name, says := range map[string]string{"nothing": "", "a letter": "G", "half a header": "GET / HTTP/1.1\r\nHost:", "one request, and stays": request, "two requests, and reads nothing": request + request} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				for range mostConnections {
					connect(t, addr, says)
				}
				answered(t, connect(t, addr, request))
			}
		})
	}
}

func TestAnswersBesideSilentTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	_, addr := serve(t, certified.TLS, ok)
	for range 2 * mostConnections {
		connect(t, addr, "")
	}
	c := tls.Client(connect(t, addr, ""), &tls.Config{InsecureSkipVerify: true})
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	answered(t, c)
}

// Requests at work are not ended for newcomers, who wait for the first that is done.
func TestRequestsAtWorkStay(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	_, addr := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-goOn
		ok(w, r)
	})
	var all []net.Conn
	for range mostConnections {
		all = append(all, connect(t, addr, request))
		<-begun
	}
	late := connect(t, addr, request)
	select {
	case <-begun:
		t.Error("one more than there are places for is served")
	case <-time.After(100 * time.Millisecond):
	}
	goOn <- struct{}{}
	<-begun
	close(goOn)
	for _, c := range append(all, late) {
		answered(t, c)
	}
}

func TestToLeave(t *testing.T) {
	guests := func(hosts string, working string) (all []*guest) {
		for i, host := range hosts {
			g := &guest{host: string(host)}
			if working[i] == 'w' {
				g.working = 1
			}
			all = append(all, g)
		}
		return all
	}
	for _, c := range []struct {
		hosts, working string
		leaves         int // -1: nobody
	}{
		{"a", ".", 0},
		{"aaa", "...", 0},
		{"aaa", "w..", 1},
		{"aaa", "www", -1},
		{"abb", "...", 1}, // of who has most
		{"abb", ".w.", 0}, // at rest
		{"abbcc", ".....", 1},
	} {
		all := guests(c.hosts, c.working)
		var want *guest
		if c.leaves >= 0 {
			want = all[c.leaves]
		}
		if got := toLeave(all); got != want {
			t.Errorf("%s %s: not %d", c.hosts, c.working, c.leaves)
		}
	}
}

// A newcomer that waits for a place does not keep the server from its end.
func TestClosedWhileSomebodyWaits(t *testing.T) {
	begun, goOn := make(chan struct{}, mostConnections), make(chan struct{})
	s, addr := serve(t, nil, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-goOn
	})
	for range mostConnections {
		connect(t, addr, request)
		<-begun
	}
	late := connect(t, addr, request)
	s.Unlisten()
	if _, err := late.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(goOn)
}
