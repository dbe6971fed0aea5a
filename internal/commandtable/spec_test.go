package commandtable

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Keys finds what COMMAND GETKEYS of a real Redis finds.
func TestKeysAreRedisOwn(t *testing.T) {
	s := testredis.Start(t)
	table := New(nil, nil, nil, listedBy(t, s))
	for _, line := range []string{
		"GET a", "SET a b EX 10", "MSET a 1 b 2", "MGET a b c", "DEL a", "EVAL x 2 a b c", "EVALSHA x 1 a", "FCALL f 2 a b", "EVAL x 0",
		"XREAD COUNT 1 STREAMS a b 0 0", "XREAD BLOCK 5 STREAMS a 0", "XREADGROUP GROUP STREAMS c STREAMS a b > >", "XGROUP CREATE a g $", "XINFO STREAM a",
		"SORT a BY w GET # STORE b", "SORT a STORE b STORE c", "SORT a LIMIT 0 STORE", "SORT_RO a", "SORT_RO a STORE b", "SORT_RO a BY w GET #", "GEORADIUS a 1 1 1 m STORE b", "GEORADIUS a 1 1 1 m STOREDIST b",
		"GEOSEARCHSTORE a b FROMMEMBER m BYRADIUS 1 m", "ZUNIONSTORE d 2 a b WEIGHTS 1 2", "ZUNION 2 a b", "ZINTERCARD 2 a b LIMIT 1", "ZMPOP 1 a MIN", "BLMPOP 0 2 a b LEFT",
		"BLPOP a b 0", "BLMOVE a b LEFT LEFT 0", "BITOP AND d a b", "PFMERGE d a", "PFCOUNT a b", "RENAME a b", "COPY a b", "OBJECT ENCODING a", "MEMORY USAGE a", "OBJECT HELP",
		"WATCH a b", "LCS a b", "SINTERSTORE d a b", "SPUBLISH a m", "SSUBSCRIBE a b", "XACK a g 1-1", "SMOVE a b c", "LMPOP 2 a b LEFT", "ECHO x", "PUBLISH a b", "EVAL x 1.5 a b", "ZDIFF 1 a",
	} {
		args := strings.Fields(line)
		words := make([][]byte, len(args))
		ask := redis.Args{"GETKEYS"}.AddFlat(args)
		for i, a := range args {
			words[i] = []byte(a)
		}
		want, err := redis.Strings(s.Dial(t).Do("COMMAND", ask...))
		if err != nil && !strings.Contains(err.Error(), "no key arguments") {
			if !strings.Contains(line, "UBLISH") && !strings.Contains(line, "SUBSCRIBE") {
				t.Errorf("%s: %v", line, err)
			}
			want = nil
		}
		if strings.HasPrefix(line, "S") && strings.Contains(line, "UBLISH") || strings.HasPrefix(line, "SSUB") {
			want = args[1:]
			if line == "SPUBLISH a m" {
				want = want[:1]
			}
		}
		c := table.Find(words)
		at, known := c.Spec.Keys(words, nil)
		got := []string{}
		for _, k := range at {
			got = append(got, args[k])
		}
		if !known || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v (known %v), want %v", line, got, known, want)
		}
	}
	c := table.Find([][]byte{[]byte("MIGRATE")})
	words := [][]byte{[]byte("MIGRATE"), []byte("h"), []byte("1"), {}, []byte("0"), []byte("5"), []byte("KEYS"), []byte("a"), []byte("b")}
	if at, known := c.Spec.Keys(words, nil); known || len(at) != 0 {
		t.Errorf("MIGRATE: %v %v", at, known)
	}
	if at := Named(resp.AppendCommand(nil, "a", "b"), words, nil); fmt.Sprint(at) != "[7 8]" {
		t.Errorf("got %v", at)
	}
}

func listedBy(t *testing.T, s *testredis.Server) []*Command {
	t.Helper()
	reply, err := s.Dial(t).Do("COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	told := Listed(encoded(nil, reply))
	if len(told) < 200 {
		t.Fatalf("%d commands", len(told))
	}
	return told
}

// encoded writes what redigo has read as it came.
func encoded(b []byte, v any) []byte {
	switch v := v.(type) {
	case []any:
		b = resp.AppendArray(b, len(v))
		for _, e := range v {
			b = encoded(b, e)
		}
	case []byte:
		b = resp.AppendBulk(b, v)
	case string:
		b = resp.AppendSimple(b, v)
	case int64:
		b = resp.AppendInt(b, v)
	default:
		b = resp.AppendNull(b, 2)
	}
	return b
}

// What a Redis before 7 tells is enough, too.
func TestKeysOfOlderRedis(t *testing.T) {
	entry := resp.AppendArray(nil, 1)
	entry = resp.AppendArray(entry, 7)
	entry = resp.AppendBulkString(entry, "mset")
	entry = resp.AppendInt(entry, -3)
	entry = resp.AppendArray(entry, 0)
	for _, n := range []int64{1, -1, 2} {
		entry = resp.AppendInt(entry, n)
	}
	entry = resp.AppendArray(entry, 0)
	c := Listed(entry)[0]
	at, known := c.Spec.Keys([][]byte{[]byte("MSET"), []byte("a"), []byte("1"), []byte("b"), []byte("2")}, nil)
	if !known || fmt.Sprint(at) != "[1 3]" {
		t.Errorf("got %v %v", at, known)
	}
}

// What COMMAND says of a command may be odd. No place that is not a word of the call, or that is its name, is taken for a key's.
func TestKeysOfOddSpecifications(t *testing.T) {
	t.Parallel()
	args := [][]byte{[]byte("X"), []byte("2"), []byte("a"), []byte("b")}
	for name, of := range map[string]struct {
		spec CommandSpec
		want string
	}{
		"as it should be":      {CommandSpec{specs: []keySpec{{index: 1, keynum: true, firstAt: 1, step: 1}}}, "[2 3]"},
		"no keys in the call":  {CommandSpec{specs: []keySpec{{index: 2, keynum: true, firstAt: 1, step: 1}}}, "[]"},
		"ahead of the call":    {CommandSpec{specs: []keySpec{{index: -3, last: -1, step: 1}}}, "[]"},
		"its name":             {CommandSpec{specs: []keySpec{{index: 0, last: -1, step: 1}}}, "[]"},
		"first ahead":          {CommandSpec{specs: []keySpec{{index: 1, keynum: true, firstAt: -5, step: 1}}}, "[]"},
		"number ahead":         {CommandSpec{specs: []keySpec{{index: 1, keynum: true, number: -9, firstAt: 1, step: 1}}}, "[]"},
		"number far behind":    {CommandSpec{specs: []keySpec{{index: math.MaxInt, keynum: true, number: math.MaxInt, firstAt: 1, step: 1}}}, "[]"},
		"a long step":          {CommandSpec{specs: []keySpec{{index: 1, keynum: true, firstAt: 1, step: math.MaxInt}}}, "[]"},
		"a long step, one key": {CommandSpec{specs: []keySpec{{index: 2, last: 0, step: math.MaxInt}}}, "[2]"},
		"older, ahead":         {CommandSpec{first: -2, last: 1, step: 1}, "[]"},
		"older, its name":      {CommandSpec{first: 0, last: 1, step: 1}, "[]"},
	} {
		if at, known := of.spec.Keys(args, []int{}); !known || fmt.Sprint(at) != of.want {
			t.Errorf("%s: got %v %v, want %s", name, at, known, of.want)
		}
	}
}
