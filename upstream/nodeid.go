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
func proveNode(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) error {
	if t.NodeID == "" {
		return nil
	}
	conn.SetDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	reply, err := AskOne(conn, resp.AppendCommand(nil, "CLUSTER", "MYID"))
	if err != nil {
		return err
	}
	if !stop() {
		return ctx.Err()
	}
	conn.SetDeadline(time.Time{})
	line := strings.TrimSpace(string(reply[1:]))
	switch {
	case reply[0] == '$':
		_, id, _ := strings.Cut(line, "\r\n")
		if len(id) == nodeIDLength && id != t.NodeID {
			return &AnotherNodeError{Addr: t.Addr, Want: t.NodeID, Got: id}
		}
	case reply[0] == '-' && strings.HasPrefix(line, noCluster):
		return &AnotherNodeError{Addr: t.Addr, Want: t.NodeID, Got: line}
	}
	return nil
}

// proveNodeAsService is proveNode on a fresh connection, which is given t's credentials first.
func proveNodeAsService(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) error {
	if t.NodeID == "" {
		return nil
	}
	if id := t.Service(); !id.Anonymous() {
		conn.SetDeadline(time.Now().Add(timeout))
		hello, n := id.handshake(nil)
		if err := ask(ctx, conn, hello, n); err != nil {
			return err
		}
	}
	return proveNode(ctx, conn, t, timeout)
}
