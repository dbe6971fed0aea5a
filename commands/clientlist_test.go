package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// words are the arguments of a call.
func words(call string) (args [][]byte) {
	for _, word := range strings.Fields(call) {
		args = append(args, []byte(word))
	}
	return args
}

func TestClientFields(t *testing.T) {
	t.Parallel()
	const line = "id=5 addr=127.0.0.1:1 name= flags=N capa= db=0 watch=0 io-thread=0 cmd=client user=default"
	for _, answer := range []string{"$" + fmt.Sprint(len(line)) + "\r\n" + line + "\r\n", "=" + fmt.Sprint(len("txt:"+line)) + "\r\ntxt:" + line + "\r\n"} {
		fields := ReadClientFields([]byte(answer))
		c := ClientFacts{ID: 7, Addr: "a:1", User: "ann", ClientState: ClientState{Queued: -1, Watched: 3}}
		if got, want := fields.line(&c), "id=7 addr=a:1 name= flags=N capa= db=0 watch=3 io-thread=0 cmd=NULL user=ann\n"; got != want {
			t.Errorf("of %q: got %s, want %s", answer, got, want)
		}
		c.Library = [2]string{"py", "1"}
		if got := fields.line(&c); !strings.HasSuffix(got, " lib-name=py lib-ver=1\n") {
			t.Errorf("the library is missing: %s", got)
		}
	}
	for _, none := range []string{"$0\r\n\r\n", "$3\r\nx y\r\n", "$3\r\nx=y\r\n", "+OK\r\n", "-NOPERM no\r\n", ""} {
		if got := ReadClientFields([]byte(none)); got != nil {
			t.Errorf("%q has fields %v", none, got)
		}
	}
}

func TestClientFlags(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]ClientState{
		"N":         {Queued: -1},
		"x":         {Queued: 0},
		"P":         {Queued: -1, Shards: 1},
		"t":         {Queued: -1, Tracks: true},
		"OPxbtBUeT": {Queued: 2, Monitors: true, Patterns: 1, Blocked: true, Tracks: true, Broadcasts: true, Unix: true, NoEvict: true, NoTouch: true},
	} {
		if got := s.flags(); got != want {
			t.Errorf("%+v: got %s, want %s", s, got, want)
		}
	}
}

// three clients: an ordinary one, a subscriber, and one that has been here for long.
var three = []ClientFacts{
	{ID: 1, Addr: "a:1", LAddr: "p:1", User: "default"},
	{ID: 2, Addr: "a:2", LAddr: "p:1", User: "ann", ClientState: ClientState{Channels: 1}},
	{ID: 3, Addr: "a:3", LAddr: "p:2", User: "default", Age: time.Minute},
}

func TestClientListChooses(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"CLIENT LIST":             "[1 2 3]",
		"CLIENT LIST TYPE normal": "[1 3]",
		"client list type PUBSUB": "[2]",
		"CLIENT LIST TYPE slave":  "[]",
		"CLIENT LIST ID 3 9 1 3":  "[3 1 3]",
		"CLIENT LIST ID 9":        "[]",
		"CLIENT LIST TYPE x":      unknownType([]byte("x")),
		"CLIENT LIST ID 1 a":      "ERR Invalid client ID",
		"CLIENT LIST ID":          syntaxError,
		"CLIENT LIST TYPE":        syntaxError,
		"CLIENT LIST TYPE a b":    syntaxError,
		"CLIENT LIST FOO 1":       syntaxError,
	} {
		f, got := parseList(words(call))
		if got == "" {
			ids := []string{}
			for _, line := range (ClientFields{"id"}).lines(f, three) {
				ids = append(ids, strings.TrimPrefix(strings.TrimSpace(line), "id="))
			}
			got = fmt.Sprint(ids)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
	}
}

func TestClientKillMatches(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"CLIENT KILL a:1":                         "[1] +OK",
		"CLIENT KILL b:1":                         "[] -ERR No such client",
		"CLIENT KILL ID 2":                        "[2] :1",
		"CLIENT KILL LADDR p:1":                   "[1 2] :2",
		"CLIENT KILL USER default TYPE normal":    "[1 3] :2",
		"CLIENT KILL TYPE pubsub":                 "[2] :1",
		"CLIENT KILL MAXAGE 60":                   "[3] :1",
		"CLIENT KILL ADDR a:1 LADDR p:2 MAXAGE 1": "[] :0",
	} {
		f, line := parseKill(words(call))
		ids := []int64{}
		for _, c := range three {
			if f.Matches(c) {
				ids = append(ids, c.ID)
			}
		}
		if got := fmt.Sprint(ids, " ", strings.TrimSpace(string(f.appendReply(nil, len(ids))))); line != "" || got != want {
			t.Errorf("%s: got %s%s, want %s", call, got, line, want)
		}
	}
}

func TestInfoTellsOfTheProxysMode(t *testing.T) {
	t.Parallel()
	const cluster, alone = "redis_mode:cluster\r\ncluster_enabled:1\r\n", "redis_mode:standalone\r\ncluster_enabled:0\r\n"
	bulk := func(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }
	for _, c := range []struct {
		node           bool
		redis, clients string
	}{{false, cluster, alone}, {false, alone, alone}, {true, alone, cluster}, {true, cluster, cluster}} {
		p := ProxyFacts{Node: c.node}
		if got := p.appendInfo(nil, 2, words("INFO server"), bulk(c.redis)); string(got) != string(bulk(c.clients)) {
			t.Errorf("node %v, Redis says %q: got %q", c.node, c.redis, got)
		}
	}
	p := ProxyFacts{Version: "1", Embedded: true, Upstream: func(line func(string, any)) { line("lockproxy_upstream", "up") }}
	for _, call := range []string{"INFO", "INFO lockproxy", "INFO ALL"} {
		got := string(p.appendInfo(nil, 2, words(call), bulk("")))
		if !strings.Contains(got, "# Lockproxy\r\nlockproxy_version:1\r\nlockproxy_embedded:1\r\n") || !strings.Contains(got, "\r\nlockproxy_upstream:up\r\n") {
			t.Errorf("%s: %q", call, got)
		}
	}
	const refused = "-NOPERM no\r\n"
	if got := p.appendInfo(nil, 2, words("INFO"), []byte(refused)); string(got) != refused {
		t.Errorf("got %q", got)
	}
}
