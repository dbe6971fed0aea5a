package dropin

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Conversations are inline commands of one connection each; every reply must be Redis' own but for the connection's
// number. {addr} stands for the connection's own address. Known to differ, and left out: a user without +select
// cannot be served in another database than that of --upstream; and Redis throws away the replies before a POST or Host:
// in one pipeline, which the proxy still delivers.
var openConversations = []string{`
PING
PING hello
PING a b
ECHO
ECHO hello
ECHO a b
SELECT
SELECT 1 2
SELECT abc
SELECT -1
SELECT 16
SELECT 15
SET k fifteen
SELECT 99999999999
SELECT 4294967296
SELECT 9223372036854775808
GET k
SELECT 0
GET k
NOSUCH
NOSUCH a b c
nosuch "with \"quotes\"" "line\r\nbreak" 'x'
"" a
OBJECT NOSUCH
CONFIG NOSUCH x
ACL NOSUCH
CLIENT NOSUCH
CLIENT NOSUCH a b
COMMAND NOSUCH
SCRIPT NOSUCH
GET
GET a b
SET a
CLIENT
CLIENT ID x
CLIENT GETNAME x
CLIENT SETNAME
CLIENT SETNAME a b
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT SETNAME "a b"
CLIENT SETNAME "a\nb"
CLIENT SETNAME fine
CLIENT GETNAME
CLIENT SETNAME "\xff"
CLIENT GETNAME
client getname
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT NO-EVICT
CLIENT NO-EVICT maybe
CLIENT NO-EVICT ON
CLIENT NO-EVICT off
CLIENT LIST TYPE
CLIENT LIST TYPE nosuch
CLIENT LIST TYPE {long}
CLIENT LIST TYPE pubsub
CLIENT LIST ID
CLIENT LIST ID x
CLIENT LIST ID 999999999
CLIENT LIST NOSUCH x
CLIENT INFO x
CLIENT KILL
CLIENT KILL 1.2.3.4:1
CLIENT KILL ADDR
CLIENT KILL ADDR 1.2.3.4:1
CLIENT KILL LADDR 1.2.3.4:1
CLIENT KILL ID x
CLIENT KILL ID -1
CLIENT KILL ID 999999999
CLIENT KILL TYPE nosuch
CLIENT KILL TYPE {long}
CLIENT {long}
COMMAND {long}
{long} {long}
CLIENT KILL TYPE pubsub
CLIENT KILL USER nosuch
CLIENT KILL ADDR 1.2.3.4:1 SKIPME maybe
CLIENT KILL ADDR 1.2.3.4:1 SKIPME no
CLIENT KILL ADDR {addr}
CLIENT KILL ADDR {addr} SKIPME yes
RESET x
QUIT
`, `
AUTH
AUTH wrong
AUTH a b
AUTH a b c
AUTH "" b
AUTH default ""
AUTH default anything
HELLO
HELLO x
HELLO 1
HELLO 4
HELLO 2.0
HELLO 2
HELLO 3
HELLO
GET nothing
HELLO 3 NOSUCH
HELLO 3 {long}
HELLO 3 AUTH
HELLO 3 AUTH default
HELLO 3 AUTH default x
HELLO 3 AUTH nobody x
HELLO 3 AUTH "" x
HELLO 3 SETNAME
HELLO 3 SETNAME "a b"
CLIENT GETNAME
HELLO 2 SETNAME one
CLIENT GETNAME
HELLO 3 SETNAME two AUTH default x
CLIENT GETNAME
HELLO 3 AUTH nobody x SETNAME three
CLIENT GETNAME
HELLO 4 SETNAME four
CLIENT GETNAME
HELLO 3 SETNAME ""
CLIENT GETNAME
GET nothing
HGETALL nothing
RESET
GET nothing
CLIENT GETNAME
HELLO 3
SELECT 5
CLIENT SETNAME kept
RESET
CLIENT GETNAME
HELLO 3
CLIENT GETNAME
HELLO 2
HELLO 3
ZADD z 1.5 a
ZSCORE z a
HELLO 2
ZSCORE z a
QUIT now please
`, `
CLIENT KILL {addr}
PING
`, `
CLIENT KILL ADDR {addr} SKIPME no
PING
`}

var closedConversations = []string{`
PING
ECHO x
GET k
GET
NOSUCH
SELECT 0
SELECT x
SELECT
CLIENT
CLIENT ID
CLIENT GETNAME
CLIENT NOSUCH
COMMAND COUNT
INFO
HELLO
HELLO 2
HELLO 3
HELLO 3 SETNAME x
HELLO 4
AUTH
AUTH wrong
AUTH default wrong
AUTH nobody wrong
AUTH switched-off pw
HELLO 3 AUTH default wrong
HELLO 3 AUTH default sekret
HGETALL nothing
RESET
HGETALL nothing
AUTH sekret
PING
SELECT 2
SET k v
RESET
GET k
AUTH default sekret
GET k
SELECT 2
GET k
AUTH wrong
GET k
HELLO 2 AUTH default wrong
GET k
ACL WHOAMI
HELLO 3 AUTH alice pw SETNAME al
ACL WHOAMI
RESET
ACL WHOAMI
QUIT
`, `
AUTH alice pw
SET app:1 x
GET app:1
SET other x
GET other
MGET app:1 other
EVAL "return 1" 0
EVAL "return 1" 1 app:1
FLUSHALL
CONFIG GET *
CLIENT LIST
CLIENT KILL 1.2.3.4:5
SELECT 1
SELECT 99
SELECT 0
ACL WHOAMI
COMMAND COUNT
PING
NOSUCH
HELLO 3
HELLO
GET app:1
AUTH bob pw
ACL WHOAMI
SET other y
FLUSHALL
CLIENT KILL USER nobody
AUTH alice wrong
ACL WHOAMI
AUTH open anything
ACL WHOAMI
GET app:1
SET app:1 y
QUIT
`}

var closedConfig = []string{
	"--requirepass sekret", "--user alice on >pw ~app:* +@read +@write +select +hello", "--user bob on >pw ~* &* +@all -@dangerous",
	"--user open on nopass %R~app:* +get +set", "--user switched-off off >pw ~* +@all",
}

func TestDropinConversations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		config        []string
		conversations []string
	}{{"open", nil, openConversations}, {"password", closedConfig, closedConversations}} {
		t.Run(c.name, func(t *testing.T) {
			direct := testredis.Start(t, c.config...)
			behind := testredis.Start(t, c.config...)
			p := harness.StartProxy(t, behind.URL())
			first := harness.Dial(t, p.Addr())
			harness.Eventually(t, "Redis' commands are known", func() bool { return strings.HasPrefix(first.Do("GET"), "-ERR wrong number") })
			for _, conversation := range c.conversations {
				for try := 1; converse(t, harness.Dial(t, direct.Addr()), harness.Dial(t, p.Addr()), conversation, try < tries); try++ {
					direct.Do(t, "FLUSHALL")
					behind.Do(t, "FLUSHALL")
				}
			}
		})
	}
}

var ownID = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`)

// converse compares what both say. If again is set and the proxy was cut off from Redis, it says nothing but that, for another try.
func converse(t *testing.T, direct, through *harness.Wire, conversation string, again bool) (cut bool) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(conversation), "\n") {
		want, wantErr := say(direct, line)
		got, gotErr := say(through, line)
		want, got = ownID.ReplaceAllString(want, "$1:N"), ownID.ReplaceAllString(got, "$1:N")
		if line == "CLIENT ID" && strings.HasPrefix(want, ":") && strings.HasPrefix(got, ":") {
			continue
		}
		if again && (gotErr != nil && wantErr == nil || strings.HasPrefix(got, unavailable)) {
			t.Logf("said again, since the proxy was cut off from Redis: %s: %q %v", line, got, gotErr)
			return true
		}
		if want != got && !valkeysOwn(strings.Fields(line), want, got) || (wantErr == nil) != (gotErr == nil) {
			t.Errorf("%s\n  redis     %q %v\n  lockproxy %q %v", line, want, wantErr, got, gotErr)
		}
		if (wantErr == nil) != (gotErr == nil) {
			return false
		}
	}
	return false
}

// say sends one inline command, in which {addr} is this connection's address.
func say(w *harness.Wire, line string) (string, error) {
	if _, err := io.WriteString(w.C, strings.NewReplacer("{addr}", w.C.LocalAddr().String(), "{long}", strings.Repeat("x", 300)).Replace(line)+"\r\n"); err != nil {
		return "", err
	}
	return w.TryRead(harness.Patience)
}

// What is pipelined around QUIT, in one write: everything before it is answered, nothing after it is run.
func TestDropinQuitInPipelines(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	for _, pipeline := range []string{
		"QUIT\r\nSET after 1\r\n",
		"SET before 1\r\nGET before\r\nQUIT\r\nSET after 1\r\nGET before\r\n",
		"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nquit\r\n*3\r\n$3\r\nSET\r\n$5\r\nafter\r\n$1\r\n1\r\n",
		"SELECT 3\r\nSET before 1\r\nCLIENT SETNAME x\r\nCLIENT GETNAME\r\nQUIT a b\r\nFLUSHALL\r\n",
		"NOSUCH\r\nGET\r\nHELLO 3\r\nGET nothing\r\nQUIT\r\nPING\r\n",
		strings.Repeat("INCR n\r\n", 3000) + "QUIT\r\n" + strings.Repeat("INCR n\r\n", 10),
		"POST / HTTP/1.1\r\nSET after 1\r\n",
	} {
		direct, through := p.dials(t, 2)
		want, got := untilEnd(direct, pipeline), untilEnd(through, pipeline)
		want, got = ownID.ReplaceAllString(want, "$1:N"), ownID.ReplaceAllString(got, "$1:N")
		if want != got {
			t.Errorf("%s\n  redis     %s\n  lockproxy %s", harness.Quoted(pipeline), harness.Quoted(want), harness.Quoted(got))
		}
	}
	p.mustEqual(t)
}

// untilEnd sends all and returns what comes until the other side hangs up; "<open>" says that it has not.
func untilEnd(w *harness.Wire, all string) string {
	var b strings.Builder
	_, _ = io.WriteString(w.C, all) // may fail, as the other side hangs up before its end
	for {
		frame, err := w.TryRead(harness.Patience)
		b.WriteString(frame)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return b.String() + "<open>"
		}
		if err != nil {
			return b.String()
		}
	}
}
