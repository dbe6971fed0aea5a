package embedded

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
)

var registered = regexp.MustCompile(`\.Register\("([A-Z_]+)"`)

// All that miniredis registers is listed: what a newer one has besides shows here.
func TestAllOfMiniredisIsListed(t *testing.T) {
	t.Parallel()
	file, _ := runtime.FuncForPC(reflect.ValueOf(miniredis.NewMiniRedis).Pointer()).FileLine(0)
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(file), "cmd_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, name := range registered.FindAllStringSubmatch(string(text), -1) {
			found++
			if find(name[1]) == nil {
				t.Errorf("%s is not in commands.resp", name[1])
			}
		}
	}
	if found < 190 {
		t.Errorf("miniredis registers %d commands: are its sources not where it was built from?", found)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := dialEmbedded(t)
	list := func(words ...any) []string {
		t.Helper()
		names, err := redis.Strings(c.Do("COMMAND", words...))
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return names
	}
	all := list("LIST")
	if count, err := redis.Int(c.Do("COMMAND", "COUNT")); err != nil || count < 200 || count >= len(all) {
		t.Errorf("COUNT: %d, %v; LIST has %d with subcommands", count, err, len(all))
	}
	for want, words := range map[string][]any{
		"mget mset msetnx": {"LIST", "filterby", "PATTERN", "M*ET*"}, "": {"LIST", "FILTERBY", "MODULE", "x"},
		"a c":   {"GETKEYS", "mset", "a", "b", "c", "d"},
		"s t":   {"GETKEYS", "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "t", ">", ">"},
		"k":     {"GETKEYS", "EVAL", "return 1", "1", "k", "v"},
		"d a b": {"GETKEYS", "ZUNIONSTORE", "d", "2", "a", "b"},
	} {
		got := list(words...)
		slices.Sort(got)
		sorted := strings.Fields(want)
		slices.Sort(sorted)
		if !slices.Equal(got, sorted) {
			t.Errorf("COMMAND %v: %q, want %q", words, got, want)
		}
	}
	streams := list("LIST", "FILTERBY", "ACLCAT", "stream")
	if !slices.Contains(streams, "xadd") || slices.Contains(streams, "get") {
		t.Errorf("the category stream: %q", streams)
	}
	for want, words := range map[string][]any{
		"ERR The command has no key arguments":                        {"GETKEYS", "PING"},
		"ERR Invalid command specified":                               {"GETKEYS", "NOSUCH", "k"},
		"ERR Invalid number of arguments specified for command":       {"GETKEYS", "GET", "k", "k"},
		"ERR wrong number of arguments for 'command|getkeys' command": {"GETKEYS"},
		"ERR unknown subcommand 'nosuch'. Try COMMAND HELP.":          {"nosuch"},
		"ERR syntax error": {"LIST", "FILTERBY", "NOSUCH", "x"},
	} {
		if reply, err := c.Do("COMMAND", words...); err == nil || err.Error() != want {
			t.Errorf("COMMAND %v: %v, %v, want %s", words, reply, err, want)
		}
	}
	infos, err := redis.Values(c.Do("COMMAND", "INFO", "Get", "nosuch", "client|id"))
	if err != nil || len(infos) != 3 || infos[1] != nil {
		t.Fatalf("INFO: %v, %v", infos, err)
	}
	for i, want := range map[int]struct {
		name  string
		arity int64
	}{0: {"get", 2}, 2: {"client|id", 2}} {
		entry, err := redis.Values(infos[i], nil)
		if err != nil || len(entry) != 10 || string(entry[0].([]byte)) != want.name || entry[1] != want.arity {
			t.Errorf("INFO of %s: %q, %v", want.name, entry, err)
		}
	}
}
