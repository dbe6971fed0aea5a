package world

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/internal/embedded"
)

// own are the commands that miniredis has not, or answers in another way than Redis does.
var own map[string]func(n *Node, s *session, args []string)

func init() {
	own = map[string]func(n *Node, s *session, args []string){
		"SUBSCRIBE": subscribe(classic), "SSUBSCRIBE": subscribe(sharded),
		"UNSUBSCRIBE": unsubscribe(classic), "SUNSUBSCRIBE": unsubscribe(sharded),
		"EVAL":    func(n *Node, s *session, args []string) { n.lua.eval(s, args, false) },
		"EVALSHA": func(n *Node, s *session, args []string) { n.lua.eval(s, args, true) },
		"SCRIPT":  func(n *Node, s *session, args []string) { n.lua.script(s, args) },
		"INFO":    info, "ROLE": role, "CLUSTER": clusterCommand, "CLIENT": clientCommand, "RESET": reset,
		"HELLO": hello, "AUTH": ok, "ASKING": ok, "READONLY": ok, "READWRITE": ok,
		"PING": ping, "BLPOP": blocks, "BRPOP": blocks, "BLMOVE": blocks, "BRPOPLPUSH": blocks, "XREAD": blocks, "XREADGROUP": blocks,
	}
}

// hook answers commands of scripts, too. mu is held; when a script runs, so is miniredis' own lock.
func (n *Node) hook(p *server.Peer, command string, args ...string) bool {
	switch {
	case command == "PUBLISH" || command == "SPUBLISH":
		if len(args) != 2 {
			p.WriteError("ERR wrong number of arguments for '" + strings.ToLower(command) + "' command")
			return true
		}
		kind := classic
		if command == "SPUBLISH" {
			kind = sharded
		}
		p.WriteInt(n.publish(kind, args[0], args[1]))
	case command == "WAIT":
		p.WriteInt(0)
	case command == "COMMAND":
		embedded.Command(p, args)
	case command == "PUBSUB" && len(args) > 1 && strings.EqualFold(args[0], "NUMSUB"):
		n.writeNumsub(p, classic, args[1:])
	case command == "PUBSUB" && len(args) > 1 && strings.EqualFold(args[0], "SHARDNUMSUB"):
		n.writeNumsub(p, sharded, args[1:])
	case command == "SUBSCRIBE" || command == "SSUBSCRIBE" || command == "UNSUBSCRIBE" || command == "SUNSUBSCRIBE":
		p.WriteError("ERR This Redis command is not allowed from script")
	case command == "ASKING":
		p.WriteOK()
	default:
		return false
	}
	return true
}

func (n *Node) writeNumsub(p *server.Peer, kind int, names []string) {
	p.Block(func(w *server.Writer) {
		w.WriteLen(2 * len(names))
		for i, count := range n.numsub(kind, names) {
			w.WriteBulk(names[i])
			w.WriteInt(count)
		}
	})
}

func newSession() *session {
	s := &session{channels: [2]map[string]bool{{}, {}}}
	s.peer = newPeer(s)
	return s
}

func newPeer(s *session) *server.Peer { return server.NewPeer(bufio.NewWriterSize(&s.out, 256)) }

// take is the output so far.
func (s *session) take() string {
	s.peer.Flush()
	out := s.out.String()
	s.out.Reset()
	return out
}

func ok(_ *Node, s *session, _ []string) { s.peer.WriteOK() }

// hello is miniredis', which knows no user: everybody may do everything.
func hello(n *Node, s *session, args []string) {
	words := []string{"HELLO"}
	for i := 0; i < len(args); i++ {
		if strings.EqualFold(args[i], "AUTH") {
			i += 2
			continue
		}
		words = append(words, args[i])
	}
	n.srv.Dispatch(s.peer, words)
}

func reset(_ *Node, s *session, _ []string) {
	s.channels = [2]map[string]bool{{}, {}}
	s.peer.Ctx, s.peer.Resp3 = nil, false
	s.peer.WriteInline("RESET")
}

func ping(_ *Node, s *session, args []string) {
	subscribed := len(s.channels[classic])+len(s.channels[sharded]) > 0
	switch {
	case subscribed && !s.peer.Resp3:
		s.peer.WriteStrings([]string{"pong", strings.Join(args, "")})
	case len(args) > 0:
		s.peer.WriteBulk(args[0])
	default:
		s.peer.WriteInline("PONG")
	}
}

// blocks refuses what would stop the World.
func blocks(_ *Node, s *session, _ []string) {
	s.peer.WriteError("ERR commands that wait are not simulated")
}

func role(n *Node, s *session, _ []string) {
	s.peer.Block(func(w *server.Writer) {
		w.WriteLen(3)
		w.WriteBulk("master")
		w.WriteInt(n.served)
		w.WriteLen(0)
	})
}

func info(n *Node, s *session, args []string) {
	var b strings.Builder
	section := ""
	if len(args) > 0 {
		section = strings.ToLower(args[0])
	}
	if section == "" || section == "server" {
		mode := "standalone"
		if n.cluster != nil {
			mode = "cluster"
		}
		fmt.Fprintf(&b, "# Server\r\nredis_version:7.0.15\r\nredis_mode:%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			mode, n.runID(), int64(n.time().Sub(n.started).Seconds()))
	}
	if section == "" || section == "replication" {
		b.WriteString("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n")
	}
	s.peer.WriteBulk(b.String())
}

func (n *Node) runID() string { return n.w.identity(n.addr, n.lives) }

func clientCommand(n *Node, s *session, args []string) {
	if len(args) == 0 {
		s.peer.WriteError("ERR wrong number of arguments for 'client' command")
		return
	}
	switch strings.ToUpper(args[0]) {
	case "ID":
		s.peer.WriteInt(1)
	case "SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH":
		s.peer.WriteOK()
	default:
		s.peer.WriteError("ERR CLIENT " + args[0] + " is not simulated")
	}
}

func clusterCommand(n *Node, s *session, args []string) {
	switch what := strings.ToUpper(strings.Join(args, " ")); {
	case n.cluster == nil:
		s.peer.WriteError("ERR This instance has cluster support disabled")
	case what == "MYID":
		s.peer.WriteBulk(n.id)
	case what == "NODES":
		s.peer.WriteBulk(n.cluster.describe(n))
	case what == "SLOTS":
		n.cluster.writeSlots(s.peer)
	case what == "SHARDS":
		n.cluster.writeShards(s.peer)
	case strings.HasPrefix(what, "KEYSLOT ") && len(args) == 2:
		s.peer.WriteInt(Slot(args[1]))
	default:
		s.peer.WriteError("ERR unknown subcommand '" + strconv.Quote(what) + "'. Try CLUSTER HELP.")
	}
}
