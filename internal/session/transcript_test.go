package session

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each block is one connection; every reply must be Redis' own, to the byte, but for the connection's number.
var openTranscripts = []string{`
SELECT abc
SELECT -1
SELECT 99
SELECT 99999999999999
SELECT
SELECT 0
SELECT 3
SET k v
SELECT 0
GET k
HELLO 4
HELLO abc
HELLO 3 foo
HELLO 2 SETNAME a|b
HELLO 2 SETNAME a\b
HELLO 3 SETNAME
AUTH
AUTH a b c
AUTH x
AUTH u p
AUTH default whatever
GET k
`, `
CLIENT
CLIENT FOO
CLIENT  id
CLIENT SETNAME
CLIENT SETNAME a~b
CLIENT GETNAME
CLIENT SETNAME é
CLIENT KILL ID 0
CLIENT KILL ID 500000
CLIENT KILL ID
CLIENT KILL 1.2.3.4:5
CLIENT KILL USER nope
CLIENT KILL TYPE foo
CLIENT KILL ID 1 SKIPME x
CLIENT KILL FOO 1
CLIENT KILL ADDR 1.2.3.4:5 TYPE pubsub
CLIENT LIST TYPE x
CLIENT LIST TYPE pubsub
CLIENT LIST ID a
CLIENT LIST ID 999999
CLIENT LIST FOO
CLIENT NO-EVICT x
CLIENT NO-EVICT on
CLIENT NO-EVICT OFF
CLIENT GETNAME X
CLIENT HELP X
RESET x
RESET
CLIENT GETNAME
COMMAND FOO
COMMAND GETKEYS
COMMAND GETKEYS set a b
COMMAND GETKEYSANDFLAGS set a b
COMMAND GETKEYS ping a
COMMAND INFO nope get
COMMAND COUNT x
COMMAND LIST FILTERBY PATTERN xread*
COMMAND LIST FOO
COMMAND DOCS nope
COMMAND DOCS get
INFO nonsense
NOSUCH a b
GET
QUIT
`, `
HELLO
HELLO 3
HELLO
CLIENT GETNAME
CLIENT LIST ID 999999
COMMAND INFO nope get
COMMAND DOCS get
GET nothing
SET k v
HGETALL k
CLIENT SETNAME x
CLIENT GETNAME
RESET
HGETALL nothing
QUIT now please
`, `
POST / HTTP/1.1
`, `
Host: example
`}

var closedTranscripts = []string{`
CLIENT
CLIENT FOO
CLIENT ID
CLIENT KILL 1.2.3.4:5
CLIENT LIST
SELECT 1
SELECT x
HELLO
HELLO 3
HELLO 3 SETNAME x
HELLO 9
HELLO 3 AUTH default wrong
AUTH foo
AUTH default foo
COMMAND
COMMAND GETKEYS set a b
RESET
INFO
INFO lockproxy
GET k
QUIT
`, `
AUTH sekret
CLIENT GETNAME
HELLO 3
RESET
CLIENT ID
HELLO 3 AUTH default sekret SETNAME foo
CLIENT GETNAME
SELECT 3
SET k v
AUTH bad
GET k
CLIENT GETNAME
SELECT 0
GET k
`, `
AUTH alice pw
GET app:1
SET app:1 x
GET other
CLIENT LIST
CLIENT KILL 1.2.3.4:5
SELECT 1
HELLO 3
GET app:1
`}

func TestTranscriptsAreRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		lines []string
	}{
		"open":     {nil, openTranscripts},
		"password": {[]string{"--requirepass sekret", "--user alice on >pw ~app:* +@read +@write"}, closedTranscripts},
	} {
		t.Run(name, func(t *testing.T) {
			redis := startRedis(t, c.args...)
			p := startProxy(t, redis.URL(), nil)
			eventually(t, "the need of a password is known", func() bool { return p.srv.asksPassword() == (c.args != nil) })
			for _, block := range c.lines {
				direct, through := dialWire(t, redis.Addr()), dialWire(t, p.addr)
				for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
					direct.raw([]byte(line + "\r\n"))
					through.raw([]byte(line + "\r\n"))
					want, got := direct.frame(), through.frame()
					if clientID.MatchString(line) && want[0] == ':' && got[0] == ':' {
						continue
					}
					want, got = blind(want), blind(got)
					if got != want {
						t.Errorf("%s\n  redis     %q\n  lockproxy %q", line, want, got)
					}
					if strings.HasPrefix(line, "QUIT") && through.frame() != "<end>" {
						t.Errorf("%s: connection stays open", line)
					}
				}
			}
		})
	}
}

var (
	idField  = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`)
	clientID = regexp.MustCompile(`(?i)^client +id$`)
)

// blind hides what differs by right: the connection's number.
func blind(frame string) string { return idField.ReplaceAllString(frame, "$1:N") }

var fieldName = regexp.MustCompile(`([a-z-]+)=`)

func TestClientInfoHasRedisFields(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	p := startProxy(t, redis.URL(), nil)
	want := fieldName.FindAllString(dialWire(t, redis.Addr()).do("CLIENT", "INFO"), -1)
	w := dialWire(t, p.addr)
	if got := fieldName.FindAllString(w.do("CLIENT", "INFO"), -1); !slices.Equal(got, want) {
		t.Errorf("fields %v, want %v", got, want)
	}
	w.expect("+OK\r\n", "CLIENT", "SETINFO", "lib-name", "mine")
	w.expect("+OK\r\n", "CLIENT", "NO-EVICT", "on")
	got := w.do("CLIENT", "INFO")
	if !strings.Contains(got, " lib-name=mine lib-ver=") || !strings.Contains(got, " flags=e ") || !strings.Contains(got, "cmd=client|info ") {
		t.Errorf("got %q", got)
	}
}

// A script that does not end can be stopped by the same user, past the connection it runs on.
func TestScriptKill(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	p := startProxy(t, redis.URL(), nil)
	stuck, killer := dialWire(t, p.addr), dialWire(t, p.addr)
	killer.expect("+PONG\r\n", "PING")
	stuck.send("EVAL", "while true do end", "0")
	eventually(t, "it is killed", func() bool { return killer.do("SCRIPT", "KILL") == "+OK\r\n" })
	if got := stuck.frame(); !strings.HasPrefix(got, "-ERR") {
		t.Errorf("got %q", got)
	}
}
