package upstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// form is what kind of place an address names.
type form int

const (
	toRedis form = iota
	toSocket
	toCluster
	toSentinels
)

// scheme is what the first word of an address says.
type scheme struct {
	form      form
	tls       bool
	port      string // of a host without one
	malformed error  // in place of net/url's errors, which quote parts of the URL, and so of a password
}

var (
	errTarget = errors.New("not of the form redis://[user[:password]@]host[:port][/db], rediss://…, " +
		"redis+sentinel://…/master-name, redis-cluster://… or unix:///path[?db=n] " +
		"(percent-encode special characters in the password)")
	errClusterTarget = errors.New("not of the form redis-cluster://[user[:password]@]host[:port][,host[:port]…] or " +
		"rediss-cluster://… (percent-encode special characters in the password)")
	errSentinels = errors.New("not of the form redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/master-name" +
		"[/db][?sentinel-user=…&sentinel-password=…], or rediss+sentinel://… (percent-encode special characters)")
)

var schemes = map[string]scheme{
	"redis":           {toRedis, false, "6379", errTarget},
	"rediss":          {toRedis, true, "6379", errTarget},
	"unix":            {toSocket, false, "", errTarget},
	"redis-cluster":   {toCluster, false, "6379", errClusterTarget},
	"rediss-cluster":  {toCluster, true, "6379", errClusterTarget},
	"redis+sentinel":  {toSentinels, false, "26379", errSentinels},
	"rediss+sentinel": {toSentinels, true, "26379", errSentinels},
}

// address is a URL that has been taken apart.
type address struct {
	scheme
	account *url.Userinfo
	hosts   []string // host:port of each; none of a socket
	path    string
	query   url.Values // what has not been read yet
}

// takeApart reads a URL with one host or more, of which url.Parse knows one only.
func takeApart(raw string) (address, error) {
	name, rest, _ := strings.Cut(raw, "://")
	s, known := schemes[strings.ToLower(name)]
	if !known {
		return address{}, errTarget
	}
	authority, tail := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, tail = rest[:end], rest[end:]
	}
	account := authority[:strings.LastIndexByte(authority, '@')+1]
	if s.form == toSentinels && strings.Count(account, "@") > 1 { // credentials come once, before the first host
		return address{}, s.malformed
	}
	u, err := url.Parse("redis://" + account + "host" + tail)
	if err != nil || u.Fragment != "" {
		return address{}, s.malformed
	}
	a := address{scheme: s, account: u.User, path: u.Path}
	if a.query, err = url.ParseQuery(u.RawQuery); err != nil {
		return address{}, s.malformed
	}
	hosts := authority[len(account):]
	if s.form == toSocket {
		if hosts != "" || strings.Trim(a.path, "/") == "" {
			return address{}, errors.New("a unix socket is written unix:///path, with three slashes")
		}
		return a, nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := s.hostPort(host)
		if err != nil {
			return address{}, err
		}
		a.hosts = append(a.hosts, addr)
	}
	return a, nil
}

// hostPort is host:port of one host.
func (s scheme) hostPort(text string) (string, error) {
	u, err := url.Parse("redis://" + text)
	switch {
	case err != nil:
		return "", s.malformed
	case u.Hostname() == "":
		return "", errors.New("the host is missing")
	}
	port := cmp.Or(u.Port(), s.port)
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("the port must be from 1 to 65535")
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// parameter reads a parameter, "" if it is not given.
func (a address) parameter(name string) string {
	defer a.query.Del(name)
	return a.query.Get(name)
}

// target is the Target that all hosts have in common: without Addr, unless that is a socket. Each part of the address
// is read, or an error.
func (a address) target() (t Target, err error) {
	t = Target{Network: "tcp", User: a.account.Username()}
	t.Password, _ = a.account.Password()
	db := strings.TrimPrefix(a.path, "/")
	switch a.form {
	case toSocket:
		t.Network, t.Addr, db = "unix", a.path, a.parameter("db")
	case toSentinels:
		master, after, _ := strings.Cut(db, "/")
		if master == "" || strings.ContainsAny(master, " \t\r\n") {
			return t, errors.New("the master's name is missing: redis+sentinel://host:port/master-name")
		}
		db = after
		t.Sentinels = &Sentinels{
			Addrs: a.hosts, Master: master,
			User: a.parameter("sentinel-user"), Password: a.parameter("sentinel-password"),
		}
	}
	if db != "" {
		if t.DB, err = strconv.Atoi(db); err != nil || t.DB < 0 {
			return t, errors.New("the database must be a number from 0 up")
		}
	}
	if a.tls { // the name to expect is that of each address: see dialAny
		t.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if v := a.parameter("insecure-skip-verify"); v != "" {
			if t.TLS.InsecureSkipVerify, err = strconv.ParseBool(v); err != nil {
				return t, errors.New("insecure-skip-verify must be true or false")
			}
		}
	}
	for name := range a.query {
		return t, fmt.Errorf("unknown parameter %q", name)
	}
	return t, nil
}

// ParseURL reads the address of a Redis (redis://, rediss://, unix://), of a master that Sentinels know
// (redis+sentinel://, rediss+sentinel://) or of a cluster (redis-cluster://, rediss-cluster://); "" is the zero URL.
// Credentials are percent-decoded; the port is 6379 (a Sentinel's 26379) unless given; with TLS there may be
// ?insecure-skip-verify=true, for a socket ?db=n. No error quotes a password.
func ParseURL(raw string) (URL, error) {
	if raw == "" {
		return URL{}, nil
	}
	a, err := takeApart(raw)
	if err != nil {
		return URL{}, err
	}
	t, err := a.target()
	switch {
	case err != nil:
		return URL{}, err
	case a.form == toCluster && t.DB != 0:
		return URL{}, errors.New("a cluster has no databases but 0")
	case a.form == toCluster:
		return URL{t, a.hosts}, nil
	case a.form == toRedis && len(a.hosts) > 1:
		return URL{}, a.malformed
	case a.form == toRedis:
		return URL{node: t.at(a.hosts[0])}, nil
	}
	return URL{node: t}, nil
}

// ParseProxy reads the address of the lockproxy to which the program's own commands connect: host:port, whose port is
// 6380 unless given, or what ParseURL reads but a cluster and Sentinels. "" stands for LOCKPROXY_ADDRESS from the environment, or else for 127.0.0.1:6380.
func ParseProxy(address string) (Target, error) {
	address = cmp.Or(address, os.Getenv("LOCKPROXY_ADDRESS"), "127.0.0.1:6380")
	if !strings.Contains(address, "://") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), "6380")
		}
		address = "redis://" + address
	}
	a, err := takeApart(address)
	t := Target{}
	if err == nil {
		t, err = a.target()
	}
	switch {
	case err == nil && a.form == toSocket:
		return t, nil
	case err == nil && a.form == toRedis && len(a.hosts) == 1:
		return t.at(a.hosts[0]), nil
	}
	return Target{}, errors.New("not host:port, redis://…, rediss://… or unix:///path")
}
