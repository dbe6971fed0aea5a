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
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/own"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// errClosed is what Serve returns once Shutdown has begun.
var errClosed = errors.New("session: server closed")

// ServerOptions set up a Server. Zero limits are resp.DefaultLimits', a zero IdleTimeout is none.
type ServerOptions struct {
	Upstream
	Limits
	CommandRules
	Appearance
	Steering
	UpstreamTimeout time.Duration // for Redis' reply to a command; 0: none
	// CertificateUser returns the password of a user whom certificates may name. nil: they name nobody.
	CertificateUser func(name string) (password string, known bool)
	Logger          *slog.Logger
	Events          *events.Log // gets what happens to clients
}

// Upstream is where commands and locks go.
type Upstream struct {
	Node     *upstream.Node   // nil with a Cluster
	Cluster  *cluster.Cluster // nil with a Node
	Locks    *lock.Manager
	Proxies  *proxies.Exchange // nil: none is known
	Budget   *upstream.Budget  // of the Node, or the Cluster's; for INFO
	Service  upstream.Identity // who the lock scripts run as: user and password of the upstream's address
	Embedded bool              // it is the embedded store
}

// Limits are what clients may take.
type Limits struct {
	MaxClients       int // 0: no limit
	MaxBulk          int // bytes of one argument
	MaxQueryMemory   int // bytes of unfinished commands of all clients together; 0: no limit
	MaxReplyMemory   int // bytes of replies gathered for all clients together; 0: no limit
	NormalOutput     downstream.OutputLimit
	PubSubOutput     downstream.OutputLimit
	IdleTimeout      time.Duration
	HandshakeTimeout time.Duration // to the first command, and to the password where one is asked for; 0: no limit
	LocksPerUser     int           // held by the clients of one user, or waited for; 0: no limit
	Protected        bool          // clients from other machines are refused while Redis asks no password
}

// CommandRules are what the operator says of commands.
type CommandRules struct {
	Allow    []string    // commands that are refused unless named here: "monitor", "debug"
	Deny     []string    // command names, or "name|subcommand", that are refused
	Blocking []string    // names of commands that may wait although Redis does not say so
	Fatal    func(error) // called soon after the start if no command has a name in these; nil: it is logged

	Operators []string // users who may run LOCKPROXY
}

// Steering is what operators ask of the process.
type Steering struct {
	// Reload has the settings read again; the error says what stays as it was, too.
	Reload func(context.Context) (said string, err error)
	Drain  func() // makes the process drain and end
	// InForce are the settings that hold, and how the last reload went.
	InForce func() inforce.State
	// Level sets the log's level, unless to is "", and returns the one that holds.
	Level func(to string) (now string, err error)
}

// Appearance is what clients are told of the proxy.
type Appearance struct {
	Version  string // lockproxy's own
	Present  bool   // it is a cluster's only node
	Announce string // host:port at which that is to be found; "": where the client has connected
}

// Server accepts clients and runs a Session for each.
type Server struct {
	o     ServerOptions
	log   *slog.Logger
	up    serverUpstream
	start time.Time
	ctx   context.Context // ends when the last clients are cut off

	process client.Process // what all clients share
	gate    *downstream.Gate
	figures telemetry.Readings // static after construction

	facts   facts
	lastOut atomic.Bool // of a drain only operators' connections are left: they may go, too
	access  serverAccess
	clients clients
	runOut  runOut
	loops   loops
}

// serverUpstream is where commands go.
type serverUpstream struct {
	backend backend.Backend
	common  *backend.Common // what all sessions' forwarders share
	own     own.Common      // what all sessions' own connections share

}

// facts are what Redis has told of itself.
type facts struct {
	table    atomic.Pointer[answers]
	known    chan struct{} // closed when Redis has told of its commands
	knownNow sync.Once
	rules    atomic.Pointer[CommandRules] // in force: Options' at first
	mu       sync.Mutex                   // held while a table is made; guards reply
	reply    []byte                       // Redis' reply to COMMAND; nil: there is none yet
	trouble  atomic.Pointer[error]        // why Redis' commands could not be learned when it was last asked
	learned  atomic.Bool                  // Redis has answered COMMAND, and whether it wants a password
	learning sync.Once
	warned   bool // that the upstream is a node of a cluster; learnLoop alone uses it
}

// serverAccess is what Redis lets clients do.
type serverAccess struct {
	needs      needs
	protection protection   // see Options.Protected
	rights     atomic.Int64 // changes when users' rights may have changed
	guesses    *guesses
}

// loops are the server's own goroutines.
type loops struct {
	running sync.WaitGroup // those that Serve starts
	cancel  context.CancelFunc
}

// NewServer makes a server that serves nothing yet.
func NewServer(o ServerOptions) *Server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{
		o:     o,
		log:   o.Logger,
		start: time.Now(),
		facts: facts{known: make(chan struct{})},
		access: serverAccess{guesses: newGuesses(),
			needs: needs{known: make(chan struct{})}},
		clients: clients{sessions: make(map[int64]*Session), proxies: o.Proxies, events: o.Events},
	}
	s.clients.about, s.figures = s.about, s.readings()
	if o.Locks != nil { // some tests have none
		o.Locks.LimitUsers(o.LocksPerUser)
	}
	s.facts.rules.Store(&o.CommandRules)
	s.ctx, s.loops.cancel = context.WithCancel(context.Background())
	s.process.Context, s.process.Relearn = s.ctx, make(chan struct{}, 1)
	s.process.Log = s.log
	s.up.common = &backend.Common{Process: &s.process, Service: o.Service, RightsChanged: s.rightsChanged,
		Deleted: s.lookAtIdentity}
	s.gate = downstream.NewGate(s.ctx, downstream.GateOptions{
		Bounds: o.Limits.bounds(), MaxQueryMemory: o.MaxQueryMemory, MaxReplyMemory: o.MaxReplyMemory,
		RefuseRemote: s.refuseRemote,
		Admit:        func(g *downstream.Conn) downstream.Client { return s.clients.addSession(s, g) }, Logger: s.log, Events: o.Events,
	})
	s.setTable(nil)
	if o.Cluster != nil {
		s.up.backend = backend.NewClustered(o.Cluster)
	} else {
		s.up.backend = backend.NewSingle(o.Node)
	}
	s.up.own = own.Common{Common: s.up.common, Backend: s.up.backend, Timeout: s.o.UpstreamTimeout, Client: s.clients.connections}
	if o.Cluster != nil || o.Node != nil { // some tests have neither
		s.up.backend.Tell(backend.Notices{Refused: s.identityRefused, Topology: s.up.own.Listeners.TopologyChanged})
	}
	return s
}

// Serve lets clients in from ln, as e says, until Shutdown. From the call on ln belongs to the Server. It may run for
// several listeners at once.
func (s *Server) Serve(ln net.Listener, e downstream.Entry) error {
	l, ok := s.gate.Guard(ln, e)
	if !ok {
		return errClosed
	}
	s.listens(ln.Addr(), e)
	s.facts.learning.Do(func() {
		s.loops.running.Go(s.learnLoop)
		// These clients have vanished without closing their connections.
		s.loops.running.Go(func() { downstream.DropDeadPeers(s.ctx, s.clients.unacknowledged) })
		// These clients do not read their replies.
		s.loops.running.Go(func() { downstream.ReadAhead(s.ctx, s.clients.conns) })
		s.loops.running.Go(s.stuckLoop)
	})
	letIn := func(redcon.Conn) bool { return true } // the gate has done so already
	return redcon.Serve(l, s.handle, letIn, s.connectionEnded)
}

// handle is called by redcon with the first command of a batch, in the connection's own goroutine.
func (s *Server) handle(conn redcon.Conn, cmd redcon.Command) {
	guarded := conn.NetConn().(*downstream.Conn)
	c := guarded.Client().(*Session)
	first, rest := guarded.Reader.Commands(cmd, conn.ReadPipeline())
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a command's handler panicked, its client is closed", "client", c.client.Peer.Addr,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.client.End.HangUp(downstream.Left, "internal error")
		}
	}()
	c.serve(first, rest)
}

// connectionEnded is called by redcon when a connection's goroutine is over; the session has ended before, in Conn.Read.
func (s *Server) connectionEnded(conn redcon.Conn, _ error) {
	conn.NetConn().(*downstream.Conn).Client().End()
	s.clients.running.Done()
}
