// Package webserver serves HTTP to operators and their machines. It answers whatever others do who are connected: a request
// that comes whole is answered long before so many others have come that its connection is the oldest.
package webserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
)

// mostConnections is how many there may be at once. Files are kept for them: see --max-clients.
const mostConnections = 48

// Options set a Server up.
type Options struct {
	Name           string // of what is served, in the log
	Handler        http.Handler
	WriteTimeout   time.Duration // for a whole answer
	MaxHeaderBytes int
	// OneAnswer has a connection end with its first answer. Else one who pipelines requests keeps the processors from
	// the others' for as long as the buffers take the answers.
	OneAnswer bool
	Log       *slog.Logger
}

// Server is one HTTP server. Shutdown must end it.
type Server struct {
	http     *http.Server
	name     string
	log      *slog.Logger
	listener net.Listener // nil before Start
	serving  sync.WaitGroup
}

// New makes a server that does not serve yet.
func New(o Options) *Server {
	s := &Server{name: o.Name, log: o.Log, http: &http.Server{
		Handler:           o.Handler,
		ConnState:         enters(&admission.Newest{Most: mostConnections}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      o.WriteTimeout,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		// Otherwise OPTIONS * is answered before anybody is asked who they are.
		DisableGeneralOptionsHandler: true,

		ErrorLog: log.New(trouble{o}, "", 0),
	}}
	s.http.SetKeepAlivesEnabled(!o.OneAnswer)
	return s
}

// enters is an http.Server's ConnState. That of a new connection is told before the next one is accepted.
func enters(all *admission.Newest) func(net.Conn, http.ConnState) {
	return func(c net.Conn, to http.ConnState) {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn() // whose Close waits for nobody
		}
		switch to {
		case http.StateNew:
			runtime.Gosched() // those who have come before may be answered before they lose their places
			all.Enter(c)
		case http.StateClosed:
			all.Leave(c)
		}
	}
}

// Start serves at ln, with TLS unless secure is nil. From the call on ln is the server's.
func (s *Server) Start(ln net.Listener, secure *tls.Config) {
	s.listener = ln
	if secure != nil {
		s.listener = tls.NewListener(ln, secure)
	}
	s.serving.Go(s.serve)
}

func (s *Server) serve() {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.log.Error(s.name+" is gone", "addr", s.listener.Addr().String(), "error", err)
	}
}

// Addr is where the server listens; nil before Start.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Unlisten leaves the address to another process. Who is connected is disconnected after the answer that is under way, if there is one.
func (s *Server) Unlisten() {
	if s.listener != nil {
		s.listener.Close()
		s.serving.Wait() // else Shutdown may find the listener still open, and return that it cannot be closed again
		s.http.SetKeepAlivesEnabled(false)
	}
}

// Shutdown lets answers under way finish within ctx, and then cuts them; the error says so.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}

// trouble writes what http.Server says of connections into the log, with one message for all, since others cause it.
type trouble struct{ Options }

func (t trouble) Write(p []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(p, []byte("http: TLS handshake error")) { // which everybody causes who looks whether the port is open
		level = slog.LevelDebug
	}
	t.Log.Log(context.Background(), level, t.Name+" has trouble with a connection", "error", string(bytes.TrimSpace(p)))
	return len(p), nil
}
