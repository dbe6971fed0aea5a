package commands

import (
	"os"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func tokens(line string) [][]byte {
	var out [][]byte
	for _, f := range strings.Fields(line) {
		out = append(out, []byte(f))
	}
	return out
}

func TestGrammar(t *testing.T) {
	options := Lookup([]byte("LoCk")).Options
	for line, want := range map[string]string{
		"":                                      "",
		"block 0 px 5 owner x fence replicas 2": "",
		"OWNER x PX 1 BLOCK 9007199254740992":   "",
		"EX 1 px 1":                             "ERR syntax error near 'px'",
		"EX 1 BLOCK":                            "ERR syntax error near 'BLOCK': its value is missing",
		"BLOCK 1 Block 1":                       "ERR syntax error near 'Block'",
		"OWNER x SELF":                          "ERR syntax error near 'SELF'",
		"OWNER x ONCE":                          "ERR syntax error near 'ONCE'",
		"NX":                                    "ERR syntax error near 'NX'",
		"BLOCK -1":                              "ERR value is not an integer or out of range near 'BLOCK'",
		"BLOCK 01":                              "ERR value is not an integer or out of range near 'BLOCK'",
		"BLOCK +1":                              "ERR value is not an integer or out of range near 'BLOCK'",
		"BLOCK 9007199254740993":                "ERR value is not an integer or out of range near 'BLOCK'",
		"EX 9007199254741":                      "ERR value is not an integer or out of range near 'EX'",
		"PX 0":                                  "ERR value is not an integer or out of range near 'PX'",
		"PX 1.5":                                "ERR value is not an integer or out of range near 'PX'",
		"REPLICAS 0":                            "ERR value is not an integer or out of range near 'REPLICAS'",
		"OWNER mode":                            errOwner.Error(),
		"OWNER SELF PX 1":                       errOwner.Error(),
		"owner self px 1":                       errOwner.Error(),
		"OWNER x:write":                         errOwner.Error(),
		"OWNER " + strings.Repeat("x", 257):     errOwner.Error(),
		"OWNER 8743c9c0-0795-4907-87fd-6c719a6b4586:1": errOwner.Error(),
	} {
		_, err := parse(options, tokens(line))
		if got := errorText(err); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	g, err := parse(options, tokens("ex 7 Block 3 owner Me"))
	if err != nil || lease(g) != 7000 || g.number("BLOCK") != 3 || g.word("OWNER") != "Me" {
		t.Fatal(g, err)
	}
}

// TestSyntaxErrorsArePrintable: whatever the word, its error is a short line of ASCII.
func TestSyntaxErrorsArePrintable(t *testing.T) {
	for word, want := range map[string]string{
		"":                               "",
		"a\r\n+OK\r\n":                   `a\x0d\x0a+OK\x0d\x0a`,
		"\x00\x1b[2J\x7f":                `\x00\x1b[2J\x7f`,
		"\xff é'\\":                      `\xff \xc3\xa9\'\\`,
		strings.Repeat("x", nearShown):   strings.Repeat("x", nearShown),
		strings.Repeat("x", nearShown+1): strings.Repeat("x", nearShown) + "...",
		strings.Repeat("\x00", 1<<20):    strings.Repeat(`\x00`, nearShown) + "...",
	} {
		call := [][]byte{[]byte("RENEW"), []byte("k"), []byte(word)}
		if got := string(Lookup(call[0]).answer(&Client{Client: speaking(2)}, call, nil)); got != "-ERR syntax error near '"+want+"'\r\n" {
			t.Errorf("%.80q: %q", word, got)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"LOCK", "lock", "UnLock", "RENEW", "Fenced", "LOCKINFO", "locklist", "MultiLock", "MULTIUNLOCK"} {
		if Lookup([]byte(name)) == nil {
			t.Errorf("%s is not found", name)
		}
	}
	for _, name := range []string{"", "LOCKS", "GET", strings.Repeat("LOCK", 20)} {
		if Lookup([]byte(name)) != nil {
			t.Errorf("%s is found", name)
		}
	}
}

// TestDescriptionsAreWhole has the proxy's own scanner find the end of what redis-cli and clients will parse.
func TestDescriptionsAreWhole(t *testing.T) {
	for _, proto := range []int{2, 3} {
		for _, v := range sortedVerbs() {
			d := v.described()
			for _, frame := range [][]byte{appendValue(nil, proto, d.entry()), d.appendDoc(resp.AppendMap(nil, proto, 1), proto)} {
				var s resp.Scanner
				n, done, err := s.Scan(frame)
				if n != len(frame) || !done || err != nil {
					t.Errorf("%s in RESP%d: %d of %d bytes, %v, %v:\n%q", v.Name, proto, n, len(frame), done, err, frame)
				}
			}
		}
	}
}

// TestVerbsAreDocumented keeps the table in docs/VERBS.md to the code's, and the README names every verb.
func TestVerbsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/VERBS.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range sortedVerbs() {
		if want := "| `" + strings.ReplaceAll(usage(v), "|", "\\|") + "` |"; !strings.Contains(string(page), want) {
			t.Errorf("docs/VERBS.md lacks %s", want)
		}
		if want := "[`" + strings.ToUpper(v.Name); !strings.Contains(string(readme), want+" ") && !strings.Contains(string(readme), want+"`") {
			t.Errorf("the README's table lacks %s", strings.ToUpper(v.Name))
		}
	}
}

// TestNamesHaveABound: a longer one never reaches Redis.
func TestNamesHaveABound(t *testing.T) {
	for _, v := range sortedVerbs() {
		long := make([]byte, lockstore.MaxName+1)
		var args [][]byte
		switch v.keys {
		case noKey:
			continue
		case oneKey:
			args = [][]byte{[]byte(v.Name), long, nil}[:max(2, -v.Arity)]
		case countedKeys:
			args = [][]byte{[]byte(v.Name), []byte("2"), []byte("short"), long}
		}
		reply := v.answer(&Client{Client: speaking(2)}, args, nil)
		if got, want := string(reply), "-ERR invalid lock name: more than 4096 bytes\r\n"; got != want {
			t.Errorf("%s: %q", v.Name, got)
		}
	}
}

// usage is the verb with its arguments, as docs/VERBS.md has it; options that exclude one another stand together.
func usage(v *Verb) string {
	var b strings.Builder
	b.WriteString(strings.ToUpper(v.Name))
	for _, w := range v.keys.words() {
		b.WriteString(" " + w)
	}
	for _, choice := range v.choices() {
		words := make([]string, len(choice))
		for i, o := range choice {
			words[i] = word(o)
		}
		b.WriteString(" [" + strings.Join(words, "|") + "]")
	}
	if v.Wraps {
		b.WriteString(" command [arg …]")
	}
	return b.String()
}

func word(o Option) string {
	if o.kind == noValue {
		return o.Keyword
	}
	return o.Keyword + " " + o.Value
}

// words are the arguments that say the keys, as the help has them.
func (p keyPosition) words() []string {
	return [...][]string{noKey: nil, oneKey: {"key"}, countedKeys: {"numkeys", "key [key …]"}}[p]
}
