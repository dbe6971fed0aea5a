package session

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Other proxies are known by the names of their connections to Redis, "lockproxy:<uuid>:<address>", which CLIENT LIST tells. Whoever may run
// CLIENT LIST is shown them, and Redis is asked as that user: the service account needs no right for it.

const (
	proxiesFor = 5 * time.Second // for which an answer is good
	uuidLength = 36
)

// proxies are where other proxies are, by their uuids.
type proxies struct {
	known atomic.Pointer[map[string]string] // nil: Redis has not been asked
	turn  sync.Mutex                        // who has it asks Redis; the others go by what is known. It guards until
	until time.Time
}

// ProxyOf implements commands.Neighbours.
func (s *Session) ProxyOf(owner string) string {
	if len(owner) < uuidLength+2 || owner[uuidLength] != ':' || s.srv.o.Locks == nil || owner[:uuidLength] == s.srv.o.Locks.UUID() {
		return ""
	}
	p := &s.srv.facts.proxies
	if p.turn.TryLock() {
		if now := time.Now(); now.After(p.until) {
			if lists, err := s.AskAll(bytesOf([]string{"CLIENT", "LIST", "TYPE", "normal"})); err == nil {
				known := proxiesIn(lists, userName(s.srv.o.Service.User))
				p.known.Store(&known)
			}
			p.until = now.Add(proxiesFor)
		}
		p.turn.Unlock()
	}
	if known := p.known.Load(); known != nil {
		return (*known)[owner[:uuidLength]]
	}
	return ""
}

// proxiesIn finds the proxies in what nodes answer to CLIENT LIST. Only connections of the service account's user are believed: any client
// may give itself such a name.
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
			if is && user == service && len(said) > uuidLength+1 && said[uuidLength] == ':' {
				known[said[:uuidLength]] = reachedAt(said[uuidLength+1:], addr)
			}
		}
	}
	return known
}

// reachedAt is the address that a proxy listens at. Where that says nothing of the machine, Redis has seen which one it is.
func reachedAt(listens, seen string) string {
	host, port, err := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); err != nil || host != "" && host != "localhost" && (ip == nil || !ip.IsUnspecified() && !ip.IsLoopback()) {
		return listens
	}
	machine, _, err := net.SplitHostPort(seen)
	if err != nil || strings.HasPrefix(seen, "/") {
		return listens
	}
	return net.JoinHostPort(machine, port)
}
