package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

const sentinelPort = "26379"

// Sentinels say which Redis a Target means: the present master of that name.
type Sentinels struct {
	Addrs  []string // host:port of each
	Master string   // the name they know it by
	// User and Password are for the Sentinels themselves. Password with User "" belongs to their default user.
	User, Password string
	Secret         Secret // unless nil, it has the password instead
}

// Account is who the proxy is at the Sentinels.
func (s *Sentinels) Account() Identity {
	return Identity{User: s.User, Password: s.Password, Secret: s.Secret}
}

// Form of the address of a master that Sentinels know.
var errSentinels = errors.New("not of the form redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/master-name[/db][?sentinel-user=…&sentinel-password=…], or rediss+sentinel://… (percent-encode special characters)")

// sentinelScheme says whether rawURL names Sentinels, with the scheme of the Redis behind them.
func sentinelScheme(rawURL string) (scheme, rest string, ok bool) {
	before, rest, _ := strings.Cut(rawURL, "://")
	scheme, ok = strings.CutSuffix(strings.ToLower(before), "+sentinel")
	return scheme, rest, ok && (scheme == "redis" || scheme == "rediss")
}

// parseSentinels reads redis+sentinel:// and rediss+sentinel://. net/url does not take a list of hosts, so it is given the
// rest with a host of our own.
func parseSentinels(scheme, rest string) (Target, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndex(authority, "@")
	if strings.Count(authority, "@") > 1 { // credentials come once, before the first host
		return Target{}, errSentinels
	}
	u, err := url.Parse(scheme + "://" + authority[:at+1] + "sentinels" + tail)
	if err != nil {
		return Target{}, errSentinels
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return Target{}, errSentinels
	}
	t := Target{Network: "tcp", User: u.User.Username(), Sentinels: &Sentinels{
		User: query.Get("sentinel-user"), Password: query.Get("sentinel-password"),
	}}
	t.Password, _ = u.User.Password()
	query.Del("sentinel-user")
	query.Del("sentinel-password")
	for host := range strings.SplitSeq(authority[at+1:], ",") {
		addr, err := sentinelAddr(host)
		if err != nil {
			return Target{}, err
		}
		t.Sentinels.Addrs = append(t.Sentinels.Addrs, addr)
	}
	if err := t.parseMaster(u.Path); err != nil {
		return Target{}, err
	}
	if scheme == "rediss" {
		t.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // the name to expect is that of each address: see dial
		if err := t.parseSkipVerify(query); err != nil {
			return Target{}, err
		}
	}
	return t, unknownParameter(query)
}

// parseMaster reads /master-name[/db].
func (t *Target) parseMaster(path string) error {
	name, db, given := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if name == "" || strings.ContainsAny(name, " \t\r\n") {
		return errors.New("the master's name is missing: redis+sentinel://host:port/master-name")
	}
	t.Sentinels.Master = name
	if given && db != "" {
		return t.parseDB(db)
	}
	return nil
}

// sentinelAddr is host:port of one Sentinel.
func sentinelAddr(text string) (string, error) {
	u, err := url.Parse("redis://" + text)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return "", errors.New("each Sentinel is host or host:port, with commas between")
	}
	port := u.Port()
	if port == "" {
		port = sentinelPort
	}
	if err := validPort(port); err != nil {
		return "", err
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// sentinelString is the address without any password.
func (t Target) sentinelString() string {
	scheme, user, db := "redis+sentinel://", "", ""
	if t.TLS != nil {
		scheme = "rediss+sentinel://"
	}
	if t.User != "" {
		user = url.User(t.User).String() + "@"
	}
	if t.DB != 0 {
		db = "/" + strconv.Itoa(t.DB)
	}
	return scheme + user + strings.Join(t.Sentinels.Addrs, ",") + "/" + url.PathEscape(t.Sentinels.Master) + db
}
