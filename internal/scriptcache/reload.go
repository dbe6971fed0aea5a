package scriptcache

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// State is what is known of a script to which NOSCRIPT was answered.
type State byte

// The states.
const (
	Unknown State = iota // it is there, or nobody knows: the script itself may have said NOSCRIPT
	absent               // Redis does not have it
	Loaded               // Redis did not have it, until now
)

// Ask asks Redis one question on an open connection.
type Ask func(words ...string) (reply []byte, err error)

// Reload has a node, known as where, load scripts that it has lost, over the connection that open returns. The service account
// asks: the client has been let run them, or it would have been told NOPERM. seen is the Version before the client's commands
// were sent. Scripts whose text no client has sent through this proxy are not asked for.
func (c *Cache) Reload(open func() (ask Ask, release func(), err error), where string, shas []string, seen uint64) map[string]State {
	c.loading.RLock()
	defer c.loading.RUnlock()
	node := c.node(where)
	node.Lock()
	defer node.Unlock()
	states := make(map[string]State, len(shas))
	bodies := make(map[string]string)
	ask := []string{"SCRIPT", "EXISTS"}
	for _, sha := range shas {
		if _, twice := states[sha]; twice {
			continue
		}
		states[sha] = Unknown
		text, again, known := c.find(sha, where)
		switch {
		case known && again > seen: // for another client, since
			states[sha] = Loaded
		case known:
			bodies[sha] = text
			fallthrough
		default:
			ask = append(ask, sha)
		}
	}
	if len(bodies) == 0 {
		return states
	}
	redis, release, err := open()
	if err != nil {
		return states
	}
	defer release()
	there, err := redis(ask...)
	r, ok := resp.ParseReply(there)
	if err != nil || !ok || len(r.Elems) != len(ask)-2 {
		return states
	}
	for i, sha := range ask[2:] {
		if string(r.Elems[i].Text) != "0" {
			continue
		}
		states[sha] = absent
		if body, known := bodies[sha]; known {
			if answer, err := redis("SCRIPT", "LOAD", body); err == nil && bytes.Contains(answer, []byte(sha)) {
				c.loaded(sha, where)
				telemetry.ScriptsReloaded.Add(1)
				states[sha] = Loaded
			}
		}
	}
	return states
}
