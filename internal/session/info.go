package session

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// info is Redis' INFO with a section of this proxy's own behind it.
func (s *Session) info(args [][]byte) {
	answer, err := s.askInfo(args)
	if err != nil {
		s.fail(err)
		return
	}
	s.batch.Out = s.srv.about().AppendInfo(s.batch.Out, s.ident.Proto, args, answer)
}

// askInfo is INFO of all nodes that have keys, as one.
func (s *Session) askInfo(args [][]byte) ([]byte, error) {
	all, err := s.pipes.AskAll(args)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, r := range all {
		if r.Kind == '$' || r.Kind == '=' {
			texts = append(texts, string(r.Text))
		}
	}
	if len(all) == 1 || len(texts) == 0 { // they refuse it
		return all[0].Raw, nil
	}
	return resp.AppendVerbatim(nil, s.ident.Proto, "txt", commands.SumInfo(texts)), nil
}

// about is what INFO tells of this proxy.
func (s *Server) about() *commands.ProxyFacts {
	connections, most := s.o.Budget.Used()
	return &commands.ProxyFacts{
		Version: s.o.Version, Embedded: s.o.Embedded, Node: s.o.Present, Uptime: time.Since(s.start), Clients: s.clients.n.Load(),
		Connections: connections, MaxConnections: most, Upstream: s.up.backend.Describe, Locks: s.o.Locks,
	}
}

// To its clients the proxy is a Redis alone, whatever is upstream, or, with Options.Present, the only node of a cluster:
// clients that know clusters then find all slots here.

// mode is what HELLO calls that.
func (s *Server) mode() string {
	if s.o.Present {
		return "cluster"
	}
	return "standalone"
}

// noCluster is Redis' answer to what only a cluster's node would take.
func (s *Session) noCluster([][]byte) { s.error("ERR This instance has cluster support disabled") }

// clusterSwitch is READONLY, READWRITE and ASKING: every slot is here and writable, so that nothing changes by them but,
// where replicas may be read from, whether this client's reads go there.
func (s *Session) clusterSwitch(args [][]byte) {
	if s.srv.o.ReadFrom != ReadMaster && !equalFold(args[0], "asking") {
		s.pipes.replicas = equalFold(args[0], "readonly")
		s.ok()
		return
	}
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	s.ok()
}

// cluster answers CLUSTER with a subcommand Redis did not list. It never asks Redis, which may be a cluster's node and
// would give away the others' addresses, or reset itself.
func (s *Session) cluster(args [][]byte) {
	if s.srv.o.Present {
		s.clusterNode(args)
		return
	}
	c := s.srv.facts.table.Load().Lookup([]byte("cluster"))
	if c == nil || c.Subs == nil || len(c.Subs) < 2 { // it did not list any
		s.noCluster(args)
		return
	}
	unknownSubcommand(s, args)
}

// clusterNode is CLUSTER of the only node of a cluster.
func (s *Session) clusterNode(args [][]byte) {
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	host, port, err := s.announced()
	if err != nil {
		s.fail(err)
		return
	}
	out, ok := commands.ClusterNode{Host: host, Port: port}.Answer(s.batch.Out, s.ident.Proto, args[1:])
	if !ok {
		s.askSlot(args)
		return
	}
	s.batch.Out = out
}

// askSlot asks the node that has a slot.
func (s *Session) askSlot(args [][]byte) {
	slot, ok := resp.Integer(args[2])
	if !ok || slot < 0 || slot >= cluster.Slots {
		s.error("ERR Invalid slot")
		return
	}
	s.relay(s.askAt(backend.AtSlot(int(slot)), args...))
}

// announced is where clients are told to find this proxy: by default where this one has.
func (s *Session) announced() (host string, port int, err error) {
	addr := s.srv.o.Announce
	if addr == "" {
		addr = s.peer.laddr
	}
	host, digits, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil {
		return "", 0, fmt.Errorf("this proxy's address is not known here: set --announce-address")
	}
	return host, port, nil
}
