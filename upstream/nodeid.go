package upstream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// AnotherNodeError says that another node than the expected one answers at an address: it has taken the address over.
type AnotherNodeError struct {
	Addr string
	Want string // node id
	Got  string // node id, or what a server that is no node of a cluster says
}

func (e *AnotherNodeError) Error() string {
	return fmt.Sprintf("another server answers at %s: it is %q, not the node %s of this cluster", e.Addr, e.Got, e.Want)
}

// noCluster is what a server says that is no node of a cluster.
const noCluster = "ERR This instance has cluster support disabled"

// nodeIDLength is the length of a node id, in hexadecimal digits.
const nodeIDLength = 40

// proof asks the server (CLUSTER MYID) whether it is the node that t means. Nobody else uses the connection, which has
// t's or a client's credentials. A server that does not tell, for example because the user may not ask, is believed:
// the topology says which node has which address, and the next refresh corrects a mistake.
func (t Target) proof() []step {
	if t.NodeID == "" {
		return nil
	}
	return []step{{[]string{"CLUSTER", "MYID"}, t.isNode}}
}

// isNode returns an *AnotherNodeError if a reply to CLUSTER MYID is that of another server than the node that t means.
func (t Target) isNode(reply []byte) error {
	said, _ := resp.ParseReply(reply)
	got := string(said.Text)
	another := false
	switch said.Kind {
	case '$':
		another = len(got) == nodeIDLength && got != t.NodeID
	case '-':
		another = strings.HasPrefix(got, noCluster)
	}
	if another {
		return &AnotherNodeError{Addr: t.Addr, Want: t.NodeID, Got: got}
	}
	return nil
}

// proveNode has a fresh connection, which nobody has logged in on, show whether it leads to the node that t means.
func proveNode(ctx context.Context, c *termConn, t Target, timeout time.Duration) error {
	if t.NodeID == "" {
		return nil
	}
	return perform(ctx, c, time.Now().Add(timeout), t.Service().steps(), t.proof())
}
