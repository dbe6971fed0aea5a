package session

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Other proxies are known by the names of their connections to Redis, "lockproxy:<uuid>:<address>", which CLIENT LIST
// shows. Redis is asked as the client's user, who needs the right to run CLIENT LIST: the service account does not.

const (
	proxiesFor = 5 * time.Second // how long an answer is used
	uuidLength = 36
)

// proxies are where other proxies are, by their uuids.
type proxies struct {
	self    string // this one's uuid; "": there are no locks
	service string // the user as whom proxies are connected
	quorum  bool   // locks are elsewhere: their proxies may have another Redis for data

	known atomic.Pointer[map[string]string] // nil: Redis has not been asked
	turn  sync.Mutex                        // who has it asks Redis; the others use what is known. It guards until
	until time.Time
}

// ProxyOf implements commands.Proxy.
func (p *proxies) ProxyOf(owner string, f *backend.Forwarder) (at string, none bool) {
	return p.find(owner, f.AskAll)
}

// ProxyOf is commands.Proxy's, asked as the service account, for the page. It may lack the right to ask.
func (s *Server) ProxyOf(ctx context.Context, owner string) (at string, none bool) {
	return s.onPage.find(owner, func(words [][]byte) ([]resp.Reply, error) {
		return s.up.common.AskAllAsService(ctx, s.up.backend, words)
	})
}

// Scan makes a step of a SCAN as the service account, for the page.
func (s *Server) Scan(ctx context.Context, db int, step backend.Scan) (next string, keys []string, err error) {
	return s.up.common.ScanAsService(ctx, s.up.backend, db, step)
}

// find is ProxyOf with what asks all nodes.
func (p *proxies) find(owner string, ask func(words [][]byte) ([]resp.Reply, error)) (at string, none bool) {
	uuid, _ := cutUUID(owner)
	if uuid == "" || uuid == p.self {
		return "", false
	}
	if p.turn.TryLock() {
		if now := time.Now(); now.After(p.until) {
			if lists, err := ask(bytesOf([]string{"CLIENT", "LIST", "TYPE", "normal"})); err == nil {
				known := proxiesIn(lists, p.service)
				p.known.Store(&known)
			}
			p.until = now.Add(proxiesFor)
		}
		p.turn.Unlock()
	}
	known := p.known.Load()
	if known == nil {
		return "", false
	}
	at, is := (*known)[uuid]
	_, self := (*known)[p.self] // else the list is not whole
	return at, self && !is && !p.quorum
}

// cutUUID cuts "<uuid>:<rest>"; "": it is no such thing.
func cutUUID(of string) (uuid, rest string) {
	if uuid, rest, _ = strings.Cut(of, ":"); len(uuid) != uuidLength {
		return "", ""
	}
	return uuid, rest
}

// proxiesIn finds the proxies in what nodes answer to CLIENT LIST. Only connections of the service account's user are
// believed: any client may give itself such a name. The proxies of others, which may be such, are in no place.
func proxiesIn(lists []resp.Reply, service string) map[string]string {
	known := map[string]string{}
	for _, list := range lists {
		for line := range strings.Lines(string(list.Text)) {
			var addr, name string
			user := service // Redis 5 has no users
			for _, field := range strings.Fields(line) {
				switch key, value, _ := strings.Cut(field, "="); key {
				case "addr":
					addr = value
				case "name":
					name = value
				case "user":
					user = value
				}
			}
			said, is := strings.CutPrefix(name, "lockproxy:")
			uuid, at := cutUUID(said)
			switch {
			case !is, uuid == "":
				continue
			case user == service:
				at = reachedAt(at, addr)
			default:
				at = known[uuid]
			}
			known[uuid] = at
		}
	}
	return known
}

// reachedAt returns the address at which a proxy listens. If that does not name the machine, it is completed with the
// one that Redis has seen.
func reachedAt(listens, seen string) string {
	host, port, err := net.SplitHostPort(listens)
	if err != nil || namesMachine(host) {
		return listens
	}
	machine, _, err := net.SplitHostPort(seen)
	if err != nil || strings.HasPrefix(seen, "/") {
		return listens
	}
	return net.JoinHostPort(machine, port)
}

// namesMachine says that a host is not one that each machine has.
func namesMachine(host string) bool {
	switch ip := net.ParseIP(host); {
	case host == "", host == "localhost":
		return false
	case ip != nil:
		return !ip.IsUnspecified() && !ip.IsLoopback()
	}
	return true
}
