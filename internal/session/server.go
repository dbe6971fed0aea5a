// Package session serves one client connection each: it reads whole pipelines, sends what Redis should answer
// upstream in runs, answers what only this proxy knows, runs the lock verbs, and keeps the replies in the order of
// the commands. What the lock engine must know about the end of a connection is decided here.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// ErrClosed is what Serve answers once Shutdown has begun.
var ErrClosed = errors.New("session: server closed")

// Options set up a Server. Zero limits are resp.DefaultLimits', a zero IdleTimeout is none.
type Options struct {
	Node    *upstream.Node
	Locks   *lock.Manager
	Service upstream.Identity // who the lock scripts run as: user and password of the upstream's address

	MaxClients       int // 0: no limit
	MaxPerAddress    int // clients of one IP address; 0: no limit
	MaxBulk          int // bytes of one argument
	MaxArgs          int // arguments of one command
	MaxCommand       int // bytes of one command
	MaxQueryMemory   int // bytes of unfinished commands of all clients together; 0: no limit
	MaxReplyMemory   int // bytes of replies gathered for all clients together; 0: no limit
	NormalOutput     OutputLimit
	PubSubOutput     OutputLimit
	IdleTimeout      time.Duration
	HandshakeTimeout time.Duration // time to the first whole command; 0: none

	Allow    []string // commands that are refused unless named here: "monitor", "debug"
	Deny     []string // command names, or "name|subcommand", that are refused
	Logger   *slog.Logger
	Version  string // lockproxy's own
	Embedded bool   // the upstream is the embedded store
}

// Server accepts clients and runs a Session for each.
type Server struct {
	o      Options
	log    *slog.Logger
	limits resp.Limits
	start  time.Time

	ctx    context.Context // ends when the last clients are cut off
	cancel context.CancelFunc

	table    atomic.Pointer[table]
	paused   atomic.Int64 // unix nanoseconds until which writes are paused, as far as is known; 0: they are not
	mustAuth atomic.Bool  // Redis refuses clients that have not authenticated
	relearn  chan struct{}
	memory   *scriptMemory
	lanes    *scriptLanes
	learning sync.Once

	queries budget // of unfinished commands
	replies budget // of replies gathered

	draining atomic.Bool
	drained  chan struct{} // closed when no session is left after a drain
	once     sync.Once

	mu        sync.Mutex
	listeners []*listener
	sessions  map[int64]*Session
	lastID    int64
	taken     int                // places: sessions, and clients in a hand-shake
	byAddress map[netip.Addr]int // places; empty without MaxPerAddress

	refusals, failures seldom // in the log

	loops    sync.WaitGroup // learner, looker
	running  sync.WaitGroup // sessions, from accept to redcon's last word
	sessionN atomic.Int64
}

// NewServer makes a server that serves nothing yet.
func NewServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{
		o:         o,
		log:       o.Logger,
		limits:    resp.Limits{Args: o.MaxArgs, Bulk: o.MaxBulk, Command: o.MaxCommand},
		start:     time.Now(),
		relearn:   make(chan struct{}, 1),
		drained:   make(chan struct{}),
		sessions:  make(map[int64]*Session),
		memory:    newScriptMemory(),
		lanes:     newScriptLanes(),
		byAddress: make(map[netip.Addr]int),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.setBudgets()
	s.table.Store(newTable(o.Allow, o.Deny, nil))
	if o.Node != nil {
		o.Node.OnRefused(s.identityRefused)
	}
	return s
}

// Serve lets clients in from ln until Shutdown, and owns ln from then on. It may run for several listeners at once.
func (s *Server) Serve(ln net.Listener) error { return s.ServeEntry(ln, Entry{}) }

// ServeEntry is Serve for clients that go through e first.
func (s *Server) ServeEntry(ln net.Listener, e Entry) error {
	l := newListener(ln, s, e)
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		ln.Close()
		return ErrClosed
	}
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	s.learning.Do(func() {
		s.loops.Go(s.learnLoop)
		s.loops.Go(s.lookLoop)
	})
	return redcon.Serve(l, s.handle, s.accepted, s.ended)
}

// accepted is redcon's word that a connection begins; the listener has let it in already.
func (s *Server) accepted(conn redcon.Conn) bool { return true }

// handle is called by redcon with the first command of a batch, in the connection's own goroutine.
func (s *Server) handle(conn redcon.Conn, cmd redcon.Command) {
	g := conn.NetConn().(*guard)
	rest := conn.ReadPipeline()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a command's handler panicked, its client is closed", "client", g.sess.addr, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			g.hangUp(lock.Left, "internal error")
		}
	}()
	g.sess.serve(cmd, rest)
}

// ended is redcon's word that a connection's goroutine is over; the session has ended before, in guard.Read.
func (s *Server) ended(conn redcon.Conn, _ error) {
	conn.NetConn().(*guard).sess.end()
	s.running.Done()
}

// admit gives a new connection, which has its place, its number and its session.
func (s *Server) admit(e entrant) *guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	g := newGuard(e.conn, s)
	g.opened = e.since
	g.sess = newSession(s, g, s.lastID)
	g.sess.place = e.place
	s.sessions[s.lastID] = g.sess
	s.running.Add(1)
	s.sessionN.Add(1)
	telemetry.Clients.Add(1)
	telemetry.ClientsAccepted.Add(1)
	return g
}

// forget frees the place of a session that has ended.
func (s *Server) forget(c *Session) {
	s.mu.Lock()
	delete(s.sessions, c.id)
	s.mu.Unlock()
	s.leavePlace(c.place)
	s.sessionN.Add(-1)
	telemetry.Clients.Add(-1)
}
