package session

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Other proxies are known by the names of their connections to Redis, "lockproxy:<uuid>:<address>", which CLIENT LIST shows. Redis is asked
// as the client's user, who needs the right to run CLIENT LIST: the service account does not.

const (
	proxiesFor = 5 * time.Second // how long an answer is used
	uuidLength = 36
)

// proxies are where other proxies are, by their uuids.
type proxies struct {
	self    string // this one's uuid; "": there are no locks
	service string // the user as whom proxies are connected

	known atomic.Pointer[map[string]string] // nil: Redis has not been asked
	turn  sync.Mutex                        // who has it asks Redis; the others use what is known. It guards until
	until time.Time
}

// ProxyOf implements commands.Proxy.
func (p *proxies) ProxyOf(owner string, f *backend.Forwarder) string {
	if len(owner) < uuidLength+2 || owner[uuidLength] != ':' || p.self == "" || owner[:uuidLength] == p.self {
		return ""
	}
	if p.turn.TryLock() {
		if now := time.Now(); now.After(p.until) {
			if lists, err := f.AskAll(bytesOf([]string{"CLIENT", "LIST", "TYPE", "normal"})); err == nil {
				known := proxiesIn(lists, p.service)
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

// reachedAt returns the address at which a proxy listens. If that does not name the machine, it is completed with the one that
// Redis has seen.
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
