package checked

import (
	"strings"
	"testing"
)

// Whatever a node says, rueidis does not panic in a goroutine of its own, which would end the process, and the call
// has an error.
func TestOddRepliesEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"one too many":           clock + "+OK\r\n+PONG\r\n:1\r\n+OK\r\n",
		"a length below zero":    "$-5\r\n",
		"an endless length":      "$9999999999999999\r\n",
		"a number of elements":   "*-2\r\n",
		"too many elements":      "*1000000000\r\n",
		"too many pairs":         "%4611686018427387904\r\n",
		"pairs below zero":       "%-1\r\n",
		"elements in elements":   strings.Repeat("*200000\r\n", 3),
		"nested":                 strings.Repeat("*1\r\n", 1<<17),
		"attributes":             "|-1\r\n",
		"streamed":               "$?\r\n;-5\r\n",
		"streamed elements":      "*?\r\n",
		"a message in a reply":   "*1\r\n>2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n",
		"a subscription":         began,
		"a subscription of text": ">2\r\n+subscribe\r\n_\r\n",
		"a long boolean":         "#true\r\n",
		"a long null":            "_nil\r\n",
		"LF alone":               "+OK\n",
		"a body too long":        "$1\r\nabc\r\n",
		"no digits":              "$\r\n",
		"other digits":           "*1e9\r\n",
		"a null of other bytes":  "_ab+PONG\r\n",
		"no type":                "HTTP/1.1 200 OK\r\n",
	} {
		for _, greeting := range []string{hello, hello6} {
			if got, err := use(patient, greeting, answer); err == nil && name != "one too many" {
				t.Errorf("%s: got %q", name, got)
			}
		}
		if _, err := use(patient, answer); err == nil {
			t.Errorf("%s: it is a greeting", name)
		}
	}
}

// The same of what a subscription is answered with, of which rueidis keeps accounts of its own.
func TestOddConfirmationsEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]string{
		"before it was asked for":     {"+PONG\r\n" + began},
		"QUEUED":                      {"+PONG\r\n", "+QUEUED\r\n"},
		"QUEUED as an error":          {"+PONG\r\n", "-QUEUED\r\n"},
		"one too many":                {"+PONG\r\n", began + alsoBegan + alsoBegan},
		"a reply and a confirmation":  {"+PONG\r\n", "-ERR no\r\n" + began},
		"a busy Redis":                {"+PONG\r\n", began + alsoBegan, "-BUSY a script runs\r\n-BUSY a script runs\r\n"},
		"a PING that is refused":      {"+PONG\r\n", began + alsoBegan, "-MOVED 1 h:'ping'\r\n+PONG\r\n"},
		"two refusals":                {"+PONG\r\n", began + alsoBegan, "-MOVED 1 h:1\r\n-MOVED 1 h:1\r\n"},
		"a long refusal":              {"+PONG\r\n", began + alsoBegan, "-MOVED 1 " + strings.Repeat("h", 100) + "'ping'\r\n+PONG\r\n"},
		"UNSUBSCRIBE has two answers": {"+PONG\r\n", began + alsoBegan, "+OK\r\n+OK\r\n"},
		"UNSUBSCRIBE begins one":      {"+PONG\r\n", began + alsoBegan, began + "+PONG\r\n"},
	} {
		if _, err := listen(patient, append([]string{hello}, answers...)); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestRepliesComeThrough(t *testing.T) {
	t.Parallel()
	odd := ">0\r\n>1\r\n$7\r\nmessage\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n" + ended
	got, err := use(patient, hello, odd+clock, "+PONG\r\n*9\r\n:-1\r\n$-1\r\n*-1\r\n_\r\n#t\r\n,1.5\r\n(123\r\n=5\r\ntxt:x\r\n%1\r\n+k\r\n~1\r\n!3\r\nERR\r\n")
	if err != nil || len(got) != 2 || got[0] != "1" {
		t.Errorf("got %q, %v", got, err)
	}
	heard, err := listen(patient, []string{hello, "+PONG\r\n", began + said + alsoBegan, ended + "+PONG\r\n"})
	if err != nil || heard != "hi" {
		t.Errorf("heard %q, %v", heard, err)
	}
}

// A node of a cluster that does not have the slot any more refuses to end a subscription there. The connection stays.
func TestUnsubscribingIsRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"-MOVED 16383 10.11.12.13:6379\r\n", "-CLUSTERDOWN Hash slot not served\r\n"} {
		heard, err := listen(patient, []string{hello, "+PONG\r\n", began + said + alsoBegan, refusal + "+PONG\r\n"})
		if err == nil || heard != "hi" || !strings.Contains(refusal, err.Error()) {
			t.Errorf("%q: heard %q, %v", refusal, heard, err)
		}
	}
}

// A Redis before 6 speaks RESP2 only, in which messages are arrays like any other.
func TestOldRedisIsListenedTo(t *testing.T) {
	t.Parallel()
	two := func(s string) string { return strings.ReplaceAll(s, ">", "*") }
	commands := []string{noHello, noHello, "+PONG\r\n"} // of the client, and of its connection for one user
	messages := []string{noHello, two(began + said + alsoBegan), two(ended) + "*2\r\n$4\r\npong\r\n$0\r\n\r\n"}
	if heard, err := listen(patient, commands, commands, messages); err != nil || heard != "hi" {
		t.Errorf("heard %q, %v", heard, err)
	}
}

// Of what comes before a bad reply rueidis gets what is whole, since it is an answer.
func TestRepliesBeforeABadOne(t *testing.T) {
	t.Parallel()
	if got, err := use(patient, hello, clock+"?"); err != nil || len(got) != 2 {
		t.Errorf("got %q, %v", got, err)
	}
}
