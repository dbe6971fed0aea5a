package commands

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// operator is a client that may run LOCKPROXY, or may not.
type operator struct {
	Access
	Proxy
	Operator
	may     bool
	proto   int
	drained bool
}

func (o *operator) Operates() bool { return o.may }
func (*operator) About() *ProxyFacts {
	return &ProxyFacts{Version: "v", Upstream: func(line func(name string, value any)) { line("lockproxy_upstream", "redis") }}
}

func (*operator) Holders(n int, _ string) ([]ClientHolds, int) {
	return []ClientHolds{{Locks: 2}, {Locks: 1, WaitsFor: "x\r\n"}}[:min(n, 2)], 2
}

func (*operator) Nodes(_ context.Context, n int) []NodeFacts {
	return []NodeFacts{{Member: backend.Member{Addr: "a:1", Role: "master"}}, {Member: backend.Member{Addr: "b:1", Role: "replica", ID: "b"}, Trouble: errors.New("LOADING")}}[:min(n, 2)]
}

func (*operator) Reload(*client.Client) (string, error) {
	return "", errors.New("not good:\nmax-clients")
}
func (o *operator) Drain(*client.Client) { o.drained = true }

func (*operator) InForce() inforce.State {
	return inforce.State{Settings: []inforce.Setting{
		{Name: "deny", Value: "get,set", From: "file", Live: true}, {Name: "max-args", Value: "5", From: "flag"},
		{Name: "threads", Value: "1", From: "default", Waiting: new("")}},
		Reload: inforce.Reload{Taken: []string{"deny"}, Restart: []string{"threads"}}}
}

func (*operator) Proxies(context.Context, proxies.Question) proxies.Overview {
	return proxies.Overview{Proxies: []proxies.State{{State: "self"}, {State: "down", Trouble: "x\r\n"}}}
}

func (*operator) LogLevel(_ *client.Client, to string) (string, error) {
	if to == "x" {
		return "", errors.New("no level")
	}
	return "warn" + to, nil
}

// said is what a call is answered.
func (o *operator) said(call string) string {
	args := words(call)
	c := &Client{Client: speaking(o.proto), Access: o, Proxy: o, Operator: o}
	return string(answers[operatorCommand+"|"+strings.ToLower(string(args[1]))](c, args, nil))
}

// speaking is a client that speaks that protocol.
func speaking(proto int) *client.Client {
	return client.New(&client.Process{Context: context.Background()}, new(downstream.Conn), 1, upstream.Identity{Proto: proto, DB: 3})
}

// Only operators get answers, but to HELP, and a count that is none is an error in Redis' words.
func TestWhoOperates(t *testing.T) {
	t.Parallel()
	all, none := &operator{may: true, proto: 2}, &operator{proto: 2}
	for _, s := range operatorCommands() {
		want := "-NOPERM this user has no permissions to run the '" + s.fullName() + "' command: lockproxy's --operators does not name it\r\n"
		call := "LOCKPROXY " + s.Name
		counts := strings.Contains(s.takes, "[<count>]")
		for _, word := range strings.Fields(s.takes) {
			if word[0] != '[' {
				call += map[bool]string{true: " 1", false: " GET"}[word[0] == '<']
			}
		}
		if got := none.said(call); (got == want) == s.open {
			t.Errorf("%s: %q", call, got)
		}
		if !counts {
			continue
		}
		for _, bad := range []string{"-2", "x", "1.5", "9223372036854775808"} {
			if got := all.said(call + " " + bad); got != "-ERR count should be greater than or equal to -1\r\n" {
				t.Errorf("%s %s: %q", call, bad, got)
			}
		}
		if got := all.said(call + " 1 2 3 4"); got != "-ERR unknown subcommand or wrong number of arguments for '"+s.Name+"'. Try LOCKPROXY HELP.\r\n" {
			t.Errorf("%s 1 2 3 4: %q", call, got)
		}
	}
}

// RELOAD answers what is wrong, on one line, and DRAIN is for operators only.
func TestOperatorsSteer(t *testing.T) {
	t.Parallel()
	all, none := &operator{may: true}, &operator{}
	if got := all.said("LOCKPROXY RELOAD"); got != "-ERR not good: max-clients\r\n" {
		t.Errorf("RELOAD: %q", got)
	}
	if got := all.said("LOCKPROXY DRAIN"); got != "+OK\r\n" || !all.drained {
		t.Errorf("DRAIN: %q, %v", got, all.drained)
	}
	if none.said("LOCKPROXY DRAIN"); none.drained {
		t.Error("who is no operator may have the proxy drain")
	}
}

// HELP has the form of Redis' own, and names each subcommand.
func TestOperatorHelp(t *testing.T) {
	t.Parallel()
	r, ok := resp.ParseReply([]byte((&operator{}).said("LOCKPROXY HELP")))
	if !ok || len(r.Elems) != 1+2*len(operatorCommands()) || string(r.Elems[0].Text) != "LOCKPROXY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:" {
		t.Fatalf("%q", r.Raw)
	}
	for i, s := range operatorCommands() {
		name, text := string(r.Elems[1+2*i].Text), string(r.Elems[2+2*i].Text)
		if word, _, _ := strings.Cut(name, " "); word != strings.ToUpper(s.Name) || strings.TrimSpace(text) != s.Summary {
			t.Errorf("%q, %q", name, text)
		}
	}
}

// Lists are as long as they are asked to be, and maps in RESP3 and flat arrays in RESP2 have the same fields.
func TestOperatorLists(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"LOCKPROXY STATS", "LOCKPROXY CLIENTS", "LOCKPROXY CLIENTS 1", "LOCKPROXY CLIENTS 0"} {
		var texts [2]string
		for i, proto := range []int{2, 3} {
			frame := []byte((&operator{may: true, proto: proto}).said(call))
			var scan resp.Scanner
			if n, done, err := scan.Scan(frame); n != len(frame) || !done || err != nil {
				t.Errorf("%s in RESP%d: %d of %d bytes, %v, %v: %q", call, proto, n, len(frame), done, err, frame)
			}
			r, _ := resp.ParseReply(frame)
			texts[i] = flat(r)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s: %q in RESP2, %q in RESP3", call, texts[0], texts[1])
		}
		want := map[string]int{"LOCKPROXY CLIENTS": 2, "LOCKPROXY CLIENTS 1": 1, "LOCKPROXY CLIENTS 0": 0}
		if n := strings.Count(texts[0], " waits-for "); n != want[call] {
			t.Errorf("%s: %d clients", call, n)
		}
	}
	if got := (&operator{may: true, proto: 3}).said("LOCKPROXY STATS"); !strings.Contains(got, "$7\r\nversion\r\n$1\r\nv\r\n") || !strings.Contains(got, "$8\r\nupstream\r\n$5\r\nredis\r\n") {
		t.Errorf("STATS: %q", got)
	}
}

// CONFIG lists settings that fit a pattern, as CONFIG GET does; what waits for nothing is nil, also where "" waits.
func TestOperatorConfig(t *testing.T) {
	t.Parallel()
	const deny = "name deny value get,set from file live 1 waiting  "
	const args, threads = "name max-args value 5 from flag live 0 waiting  ", "name threads value 1 from default live 0 waiting  "
	for call, want := range map[string]string{"": deny + args + threads, " *": deny + args + threads, " DENY": deny, " [dt]*": deny + threads, " x": " "} {
		r, _ := resp.ParseReply([]byte((&operator{may: true, proto: 3}).said("LOCKPROXY CONFIG" + call)))
		if got := flat(r); got != want {
			t.Errorf("CONFIG%s: %q, want %q", call, got, want)
		}
	}
	got := (&operator{may: true, proto: 3}).said("LOCKPROXY CONFIG")
	if strings.Count(got, "$7\r\nwaiting\r\n_\r\n") != 2 || !strings.HasSuffix(got, "$7\r\nwaiting\r\n$0\r\n\r\n") {
		t.Errorf("what waits: %q", got)
	}
	if got := (&operator{may: true, proto: 3}).said("LOCKPROXY STATS"); !strings.Contains(got, "OK; taken: deny; a restart is needed for: threads") {
		t.Errorf("STATS does not tell of the last reload: %q", got)
	}
}

// flat is all texts of a reply.
func flat(r resp.Reply) string {
	if len(r.Elems) == 0 {
		return string(r.Text) + " "
	}
	text := ""
	for _, e := range r.Elems {
		text += flat(e)
	}
	return text
}
