package locks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

const prompt = "127.0.0.1:6380> "

// exchange is one command of a session in the documentation and the lines printed for it.
type exchange struct {
	line    int // of its page
	command string
	printed []string
}

// The redis-cli sessions in README and docs (blocks marked console that have the prompt in them) print what they say they print,
// each on a fresh proxy with the embedded store.
func TestDocumentedSessions(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md")
	with := map[string]int{} // sessions in each page
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(page)
		for _, session := range documentedSessions(string(text)) {
			with[name]++
			p := harness.StartProxy(t, "")
			p.AwaitProbe(1)
			c := startCli(t, p)
			for _, e := range session {
				if got := c.printed(e.command); !sameOutput(e.printed, got) {
					t.Errorf("%s:%d: %s\n  says   %q\n  prints %q", name, e.line, e.command, e.printed, got)
				}
			}
		}
	}
	for _, name := range []string{"README.md", "VERBS.md", "FENCED.md"} {
		if with[name] == 0 {
			t.Errorf("%s shows no session", name)
		}
	}
}

// documentedSessions takes the sessions out of a Markdown text.
func documentedSessions(text string) (sessions [][]exchange) {
	inside := false
	var session []exchange
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !inside:
			inside = strings.TrimSpace(line) == "```console"
		case strings.HasPrefix(line, "```"):
			if session != nil {
				sessions = append(sessions, session)
			}
			inside, session = false, nil
		case strings.HasPrefix(line, prompt):
			session = append(session, exchange{line: i + 1, command: line[len(prompt):]})
		case session != nil:
			last := &session[len(session)-1]
			last.printed = append(last.printed, line)
		}
	}
	return sessions
}

// printed types a line and returns what redis-cli prints for it.
func (c *cli) printed(line string) (lines []string) {
	c.t.Helper()
	c.typed(line)
	c.typed("ECHO end-of-reply")
	for got := c.next(); got != `"end-of-reply"`; got = c.next() {
		lines = append(lines, got)
	}
	return lines
}

var longInteger = regexp.MustCompile(`^(\(integer\) )?[0-9]{10,}$`)

// sameOutput compares line by line. A line that is one integer of ten digits or more stands for any such.
func sameOutput(want, got []string) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !(longInteger.MatchString(want[i]) && longInteger.MatchString(got[i])) {
			return false
		}
	}
	return true
}
