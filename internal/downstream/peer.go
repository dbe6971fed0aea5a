package downstream

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"time"
)

// Peer is who a client is, as far as its connection tells.
type Peer struct {
	Addr, LocalAddr string // both ends as Redis writes them
	Unix            bool   // it came by a unix socket
	// Local: it is on this machine, as Redis' protected mode sees it. It came by a unix socket or from a loopback
	// address, and so did the balancer that named the address.
	Local    bool
	Operator bool // it came by a listener of operators
	// Certificate is the common name in its certificate, which has been verified; "": there is no certificate, or not
	// exactly one name.
	Certificate string
	Opened      time.Time // when the connection was accepted
}

func newPeer(e entrant) Peer {
	p := Peer{Local: e.local(), Certificate: certificateName(e.conn), Opened: e.since}
	p.Operator = e.entry != nil && e.entry.Operators
	p.Addr, p.LocalAddr = e.conn.RemoteAddr().String(), e.conn.LocalAddr().String()
	if p.Unix = e.conn.LocalAddr().Network() == "unix"; p.Unix {
		p.LocalAddr += ":0" // as in Redis
		p.Addr = p.LocalAddr
	}
	return p
}

func certificateName(conn net.Conn) string {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return ""
	}
	if state := secure.ConnectionState(); len(state.VerifiedChains) > 0 {
		return onlyName(state.VerifiedChains[0][0].Subject)
	}
	return ""
}

// onlyName is the common name of a subject that has exactly one: of several, each program would take another one.
func onlyName(subject pkix.Name) (name string) {
	names := 0
	for _, part := range subject.Names {
		if part.Type.Equal(commonName) {
			names++
		}
	}
	if names == 1 {
		return subject.CommonName
	}
	return ""
}

var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// IsLocal says that addr is a unix socket's or a loopback address.
func IsLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.AddrPort().Addr().Unmap().IsLoopback()
}
