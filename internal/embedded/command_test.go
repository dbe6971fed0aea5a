package embedded

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
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
		"ERR unknown subcommand 'nosuch'. Try COMMAND HELP.":       {"nosuch"},
		"ERR unknown subcommand 'GETKEYS'. Try COMMAND HELP.":      {"GETKEYS", "GET", "k"},
		"ERR wrong number of arguments for 'command|list' command": {"LIST", "FILTERBY", "MODULE", "x"},
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
