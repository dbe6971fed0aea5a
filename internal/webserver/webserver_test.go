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
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// serve runs a server at a free address.
func serve(t *testing.T, secure *tls.Config, h http.HandlerFunc) (s *Server, addr string) {
	t.Helper()
	ln := listener(t)
	s = New(Options{Name: "a test", Handler: h, WriteTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	s.Start(ln, secure)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx) // cuts what a test has left
	})
	return s, ln.Addr().String()
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
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

// One who has asked gets the answer beside newcomers, as long as there are places; then the oldest goes.
func TestTheOldestGoes(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	_, addr := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-goOn
		ok(w, r)
	})
	var all []net.Conn
	for range mostConnections + 1 {
		all = append(all, connect(t, addr, request))
		<-begun
	}
	if _, err := all[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the oldest stays: %v", err)
	}
	close(goOn)
	for _, c := range all[1:] {
		answered(t, c)
	}
}

// A place that its connection has left is free.
func TestPlacesAreFreed(t *testing.T) {
	_, addr := serve(t, nil, ok)
	first := connect(t, addr, request)
	answered(t, first)
	for range 3 * mostConnections {
		c := connect(t, addr, "GET / HTTP/1.0\r\n\r\n")
		answered(t, c)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		c.Close()
	}
	if _, err := io.WriteString(first, request); err != nil {
		t.Fatal(err)
	}
	answered(t, first)
}

// Whoever pipelines requests is answered the first one.
func TestOneAnswer(t *testing.T) {
	s, ln := New(Options{Name: "a test", Handler: http.HandlerFunc(ok), OneAnswer: true, Log: slog.New(slog.DiscardHandler)}), listener(t)
	s.Start(ln, nil)
	defer s.Shutdown(context.Background())
	c := connect(t, ln.Addr().String(), request+request)
	text, _ := io.ReadAll(c) // it may be cut for the second request
	if n := strings.Count(string(text), "200 OK"); n != 1 {
		t.Errorf("%d answers: %q", n, text)
	}
}

// Many who come at once are answered, each before those behind it take its place.
func TestManyAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ln := listener(t)
	var all []net.Conn
	for range 100 { // fewer than wait before they are let in
		all = append(all, connect(t, ln.Addr().String(), request))
	}
	s := New(Options{Name: "a test", Handler: http.HandlerFunc(ok), Log: slog.New(slog.DiscardHandler)})
	s.Start(ln, nil)
	for _, c := range all {
		answered(t, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = s.Shutdown(ctx)
}

// A server whose address is another process' already has an end without an error, however soon that comes.
func TestShutdownAfterUnlisten(t *testing.T) {
	for range 1000 {
		s, _ := serve(t, nil, ok)
		s.Unlisten()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
