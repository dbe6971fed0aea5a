package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lock"
)

// fencing is a client that notes what it is asked to run.
type fencing struct {
	Session
	asked lock.HoldRequest
	inner string
}

func (f *fencing) Fenced(r lock.HoldRequest, command [][]byte) error {
	f.asked, f.inner = r, string(bytes.Join(command, []byte(" ")))
	return nil
}

// Options end where the command begins, whatever its own arguments look like.
func TestFencedGrammar(t *testing.T) {
	v := Lookup([]byte("fenced"))
	const wrongNumber = "ERR wrong number of arguments for 'fenced' command"
	for line, want := range map[string]struct {
		err, inner string
		owner      string
		side       lock.Kind
	}{
		"FENCED k GET a":                         {inner: "GET a"},
		"FENCED k PING":                          {inner: "PING"},
		"fenced k owner me get OWNER READ WRITE": {inner: "get OWNER READ WRITE", owner: "me"},
		"FENCED k OWNER me WRITE SET a b":        {inner: "SET a b", owner: "me", side: lock.Write},
		"FENCED k read OWNER READ GET a":         {inner: "GET a", owner: "READ", side: lock.Read},
		"FENCED k READ WRITE GET a":              {err: "ERR syntax error near 'WRITE'"},
		"FENCED k OWNER a owner b GET a":         {err: "ERR syntax error near 'owner'"},
		"FENCED k OWNER":                         {err: "ERR syntax error near 'OWNER': its value is missing"},
		"FENCED k OWNER mode GET a":              {err: errOwner.Error()},
		"FENCED k OWNER me":                      {err: wrongNumber},
		"FENCED k READ":                          {err: wrongNumber},
		"FENCED k":                               {err: wrongNumber},
	} {
		var f fencing
		reply := string(v.answer(&Client{Client: speaking(2), Session: &f}, tokens(line), nil))
		if want.err != "" {
			if reply != "-"+want.err+"\r\n" || f.inner != "" {
				t.Errorf("%s: %q, ran %q", line, reply, f.inner)
			}
			continue
		}
		if asked := (lock.HoldRequest{DB: 3, Key: "k", Owner: want.owner, Side: want.side}); reply != "" || f.asked != asked || f.inner != want.inner {
			t.Errorf("%s: %q, asked for %+v, ran %q", line, reply, f.asked, f.inner)
		}
		if inner := v.inner(tokens(line)); string(bytes.Join(inner, []byte(" "))) != want.inner {
			t.Errorf("%s: the command within is %q", line, inner)
		}
	}
	d := v.described()
	doc := d.appendDoc(nil, 2)
	if want := "FENCED key [READ|WRITE] [OWNER id] command [arg …]"; usage(v) != want || !strings.Contains(string(doc), "multiple") {
		t.Errorf("usage %q", usage(v))
	}
}
