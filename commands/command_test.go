package commands

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// table is what a Redis that has these commands says of each, or of those that are asked for: null of one that it does not have.
func table(t *testing.T, names ...string) []byte {
	t.Helper()
	raw := resp.AppendArray(nil, len(names))
	for _, name := range names {
		if name == "" {
			raw = resp.AppendNull(raw, 2)
			continue
		}
		raw = resp.AppendInt(resp.AppendBulkString(resp.AppendArray(raw, 2), name), 1)
	}
	return raw
}

// all may be held.
func all(int) bool { return true }

// COMMAND INFO and COMMAND DOCS name the commands in the order, and in the letter case, that they were asked for.
func TestCommandsAsked(t *testing.T) {
	t.Parallel()
	get, set, null := "*2\r\n$3\r\nget\r\n:1\r\n", "*2\r\n$3\r\nset\r\n:1\r\n", "$-1\r\n"
	entry := func(name string) string {
		at := slices.IndexFunc(additions(), func(a addition) bool { return a.name == name })
		return string(appendValue(nil, 2, additions()[at].entry()))
	}
	lock, operators := entry("lock"), entry("lockproxy")
	for _, c := range []struct {
		call  string
		reply CommandReply
		want  string
	}{
		{"COMMAND INFO SET no Lock get", CommandReply{Raw: table(t, "set", "", "", "get"), Proto: 2, may: all}, "*4\r\n" + set + null + lock + get},
		{"COMMAND INFO SET get", CommandReply{Raw: table(t, "set", "get"), Proto: 2, may: all}, "*2\r\n" + set + get},
		{"COMMAND INFO no LOCKPROXY|STATS LOCKPROXY", CommandReply{Raw: table(t, "", "", ""), Proto: 2, may: all}, "*3\r\n" + null + null + operators},
		{"COMMAND INFO set", CommandReply{Raw: table(t), Proto: 2, may: all}, "*1\r\n" + null},
	} {
		if got := string(c.reply.appendInfo(nil, words(c.call))); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.call, c.reply.Raw, got, c.want)
		}
	}
	redis := resp.AppendBulkString(resp.AppendArray(nil, 2), "set")
	told := CommandReply{Raw: resp.AppendArray(redis, 0), Proto: 2, may: all}
	docs := string(told.appendDocs(nil, words("COMMAND DOCS no SET Unlock LockProxy set")))
	if !strings.HasPrefix(docs, "*6\r\n$3\r\nset\r\n") || !strings.Contains(docs, "\r\n$6\r\nunlock\r\n") || !strings.Contains(docs, "\r\n$9\r\nlockproxy\r\n") {
		t.Errorf("COMMAND DOCS: %.200q", docs)
	}
	if docs := string(told.appendDocs(nil, words("COMMAND DOCS"))); !strings.Contains(docs, "\r\n$3\r\nset\r\n") || !strings.Contains(docs, "\r\n$6\r\nunlock\r\n") {
		t.Errorf("COMMAND DOCS of all: %.200q", docs)
	}
}

// COMMAND INFO and COMMAND DOCS of very many names take time in proportion to them, and not to their square.
func TestCommandsAskedAreMany(t *testing.T) {
	t.Parallel()
	const n = 200_000
	names := []string{"COMMAND", "INFO"}
	for range n {
		names = append(names, "x")
	}
	many := bytesOf(names...)
	nulls := CommandReply{Raw: table(t, make([]string, n)...), Proto: 2, may: all}
	want := resp.AppendArray(nil, n)
	for range n {
		want = resp.AppendNull(want, 2)
	}
	began := time.Now()
	if got := nulls.appendInfo(nil, many); !bytes.Equal(got, want) {
		t.Errorf("COMMAND INFO: %.80q", got)
	}
	nothing := CommandReply{Raw: resp.AppendArray(nil, 0), Proto: 2, may: all}
	if got := string(nothing.appendDocs(nil, many)); got != "*0\r\n" {
		t.Errorf("COMMAND DOCS: %.80q", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
