package telemetry

import "time"

// Family is what a command is about, as Redis' documentation groups them: few
// words, so that they can be a label.
type Family uint8

// The families.
const (
	Other Family = iota
	String
	Hash
	List
	Set
	SortedSet
	Stream
	Geo
	Key
	PubSub
	Script
	Transaction
	Connection
	ServerAdmin
	families
)

var familyNames = [families]string{"other", "string", "hash", "list", "set", "sorted_set", "stream", "geo", "key", "pubsub", "script",
	"transaction", "connection", "server"}

// Run is how many commands of each family were sent to Redis together.
type Run [families]uint32

// Upstream is how long Redis, and the way there and back, took for a run.
func (r *Run) Upstream(took time.Duration) { r.record(&upstream, took) }

// Upstream is how long Redis took for one command of the family.
func (f Family) Upstream(took time.Duration) {
	upstream[f].observe(max(took, 0), 1)
}

// Proxy is how long the proxy itself took for a run.
func (r *Run) Proxy(took time.Duration) { r.record(&proxy, took) }

func (r *Run) record(to *[families]*histogram, took time.Duration) {
	for f, n := range r {
		if n > 0 {
			to[f].observe(max(took, 0), int64(n))
		}
	}
}

// began is where Clock counts from.
var began = time.Now()

// Clock is the time since the process began. It costs half of time.Now, and can be compared only with itself.
func Clock() time.Duration { return time.Since(began) }
