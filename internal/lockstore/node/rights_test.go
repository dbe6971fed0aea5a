package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// accountKinds are what docs/OPERATIONS.md tells apart, each with how it begins its row there.
var accountKinds = map[string][]right{
	"":          rights(PubSubBoth, false, false),
	"a cluster": rights(PubSubBoth, true, false),
	"a quorum":  rights(PubSubBoth, false, true),
}

// TestAccountCommands: what is asked for are the commands that the scripts have, those and no others.
func TestAccountCommands(t *testing.T) {
	files, err := filepath.Glob("../../../scripts/*.lua")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	used := map[string]bool{"publish": true, "spublish": true} // by tell.lua
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllSubmatch(text, -1) {
			used[strings.ToLower(string(found[1]))] = true
		}
	}
	asked := map[string]bool{}
	for _, rule := range ruleNames(accountKinds["a cluster"]) {
		name, sub, _ := strings.Cut(strings.TrimPrefix(rule, "+"), "|")
		asked[name] = true
		if name == "pubsub" && !strings.HasSuffix(sub, "numsub") {
			t.Error(rule)
		}
	}
	for name := range used {
		if !asked[name] {
			t.Errorf("%s is used by a script, and not asked for", name)
		}
	}
	for _, c := range accountCommands {
		if name, _, _ := strings.Cut(c, " "); !used[name] {
			t.Errorf("%s is asked for, and used by no script", name)
		}
	}
}

// TestAccountIsDocumented: docs/OPERATIONS.md has the same list, for each kind of upstream.
func TestAccountIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("\n```text\nACL SETUSER lockproxy reset resetchannels on >secret ~app:\\* (.*)\n```\n").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/OPERATIONS.md does not say what the service account needs")
	}
	for kind, all := range accountKinds {
		want := append(ruleNames(all), "&redisson_*")
		got := strings.Fields(string(block[1]))
		if kind != "" {
			row := regexp.MustCompile("\n\\| " + kind + " \\| ([^\n]*) \\|\n").FindSubmatch(text)
			if row == nil {
				t.Fatal(kind)
			}
			parts := regexp.MustCompile("(also|without) `([^`]*)`").FindAllSubmatch(row[1], -1)
			if len(parts) == 0 {
				t.Fatalf("%s: %s", kind, row[1])
			}
			for _, part := range parts {
				for _, rule := range strings.Fields(strings.ReplaceAll(string(part[2]), `\|`, "|")) {
					if string(part[1]) == "also" {
						got = append(got, rule)
					} else if i := slices.Index(got, rule); i >= 0 {
						got = slices.Delete(got, i, i+1)
					} else {
						t.Errorf("%s: %s is not in the list", kind, rule)
					}
				}
			}
		}
		// Not for locks: where a cluster's nodes are, how old a quorum's.
		got = slices.DeleteFunc(got, func(rule string) bool {
			return strings.HasPrefix(rule, "+cluster|") || rule == "%R~*"
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: docs/OPERATIONS.md has\n%s\nasked for are\n%s", kind, got, want)
		}
	}
}

// TestAccountLacks: an account with all of it lacks nothing; one without some rule lacks that.
func TestAccountLacks(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for kind, all := range accountKinds {
		rules := ruleNames(all)
		for _, missing := range append(rules, "&redisson_*", "") {
			with := []any{"ACL", "SETUSER", "svc", "reset", "on", ">pw", "resetchannels"}
			for _, rule := range append(slices.Clone(rules), "&redisson_*") {
				if rule != missing {
					with = append(with, rule)
				}
			}
			s.Do(t, with...)
			ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr(), User: "svc", Password: "pw"}, upstream.ControlOptions{Logger: slog.New(slog.DiscardHandler), DialTimeout: 10 * time.Second})
			lacking, err := (&Node{Control: ctl}).lacking(all)
			ctl.Close()
			got := strings.Join(ruleNames(lacking), " ")
			switch {
			case err != nil:
				t.Errorf("%s without %s: %v", kind, missing, err)
			case missing == "&redisson_*":
				if !strings.Contains(got, "+publish") && !strings.Contains(got, "+spublish") || !strings.Contains(got, "subscribe") {
					t.Errorf("%s without channels lacks %q", kind, got)
				}
			case missing == "+evalsha", missing == "+eval" && got == "+eval +evalsha":
			case got != missing:
				t.Errorf("%s without %q lacks %q", kind, missing, got)
			}
		}
	}
}
