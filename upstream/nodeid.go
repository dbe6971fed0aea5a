package upstream

import (
	"context"
	"fmt"
	"net"
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

// proveNode asks the server (CLUSTER MYID) whether it is the node that t means. Nobody else uses conn, which has t's or a client's
// credentials. A server that does not tell, for example because the user may not ask, is believed: the topology says which node has which
// address, and the next refresh corrects a mistake. The errors are *AnotherNodeError and those of the connection, which must be closed
// then.
func proveNode(ctx context.Context, conn net.Conn, t Target, deadline time.Time) error {
	if t.NodeID == "" {
		return nil
	}
	reply, err := Ask(ctx, conn, deadline, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	said, _ := resp.ParseReply(reply)
	got := string(said.Text)
	if said.Kind == '$' && len(got) == nodeIDLength && got != t.NodeID || said.Kind == '-' && strings.HasPrefix(got, noCluster) {
		return &AnotherNodeError{Addr: t.Addr, Want: t.NodeID, Got: got}
	}
	return nil
}

// proveNodeAsService is proveNode on a fresh connection, which is given t's credentials first.
func proveNodeAsService(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) error {
	if t.NodeID == "" {
		return nil
	}
	deadline := time.Now().Add(timeout)
	if err := greet(ctx, conn, t.Service(), deadline); err != nil {
		return err
	}
	return proveNode(ctx, conn, t, deadline)
}
