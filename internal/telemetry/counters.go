package telemetry

import "sync/atomic"

// What is counted on the way of every command. The meter reads these when it
// collects, so that counting is one atomic addition.
var (
	Clients         Gauge   // clients connected now
	ClientsAccepted Counter // clients let in since the start
	ClientsRejected Counter // clients turned away at --max-clients or --max-clients-per-address
	EntriesFailed   Counter // clients closed for their TLS hand-shake or PROXY header
	LoginsFailed    Counter // wrong passwords of clients, and wrong tokens at the page for operators
	QueryBytes      Gauge   // bytes of unfinished commands drawn from --max-query-memory
	QueryDropped    Counter // clients dropped at --max-query-memory
	ReplyBytes      Gauge   // bytes of gathered replies drawn from --max-reply-memory
	ReplyDropped    Counter // clients dropped at --max-reply-memory
	OutputDropped   Counter // clients dropped at --client-output-buffer-limit
	Commands        Counter // commands forwarded to Redis as they came
	Pipes           Gauge   // connections to Redis that carry clients' commands
	Dedicated       Gauge   // connections to Redis that one client has to itself, or had: idle ones count
	Upstream        Gauge   // connections to Redis that count for --max-upstream-connections
	UpstreamOwn     Gauge   // connections to Redis for locks, passwords and what the proxy asks of its own accord, beside those
	UpstreamRefused Counter // connections to Redis refused at --max-upstream-connections
	PipeReconnects  Counter // connections to Redis made again after a loss
	PipeFailures    Counter // connections to Redis lost, or not had; not those that Redis refuses to one user or closes unused, or that lockproxy ends itself
	MasterSwitches  Counter // times another Redis took the place of the present one
	ReplicaReads    Counter // commands that a cluster's replicas have answered
	ScriptsReloaded Counter // clients' scripts loaded again after Redis had lost them
	LocksHeld       Gauge   // holds registered on this proxy now
	LocksWaiting    Gauge   // lock verbs that wait now
)

// cacheLine keeps neighbours' writes from slowing each other down: two lines of
// 64 bytes, because x86 fetches them in pairs.
const cacheLine = 128

// Counter counts events. It only goes up. The zero value is ready; it must not
// be copied.
type Counter struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add counts n more events; n must not be negative.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Value returns the events counted since the process started.
func (c *Counter) Value() int64 { return c.n.Load() }

// Gauge counts what exists now. The zero value is ready; it must not be copied.
type Gauge struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add counts n more; n is negative when some have gone.
func (g *Gauge) Add(n int64) { g.n.Add(n) }

// Value returns how many there are now.
func (g *Gauge) Value() int64 { return g.n.Load() }
