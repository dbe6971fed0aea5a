package dropin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// generator makes up commands over all types of Redis from one seed: right and wrong ones, of the shapes in
// dropin_templates_test.go.
type generator struct {
	rnd    *rand.Rand
	large  bool     // values up to some MB now and then
	dumps  []string // payloads for RESTORE
	expand map[string]func() string
}

// seed is this run's: TESTS_SEED, or the clock's. It is logged, so that a failure can be repeated.
func seed(t testing.TB) uint64 {
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("TESTS_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TESTS_SEED=%d", n)
	return n
}

func newGenerator(seed uint64, large bool) *generator {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 0)), large: large, dumps: []string{"x"}}
	key := func(kind string) func() string {
		return func() string {
			of := kind
			if g.rnd.IntN(12) == 0 { // a key of another type
				of = g.pick("str", "hash", "list", "set", "zset", "stream", "hll", "geo", "bits")
			}
			return of + ":" + strconv.Itoa(g.rnd.IntN(4))
		}
	}
	g.expand = map[string]func() string{
		"$s": key("str"), "$h": key("hash"), "$l": key("list"), "$e": key("set"), "$z": key("zset"), "$x": key("stream"),
		"$p": key("hll"), "$g": key("geo"), "$b": key("bits"),
		"$a": func() string { return "absent:" + g.pick("0", "1") },
		"$k": func() string { return key(g.pick("str", "hash", "list", "set", "zset", "stream"))() },
		"$v": g.value,
		"$w": g.short,
		"$m": func() string { return "m" + strconv.Itoa(g.rnd.IntN(30)) },
		"$n": func() string { return strconv.Itoa(g.rnd.IntN(8)) },
		"$i": func() string {
			return g.pick("0", "1", "-1", "2", "-3", "10", "100", "-100", "abc", "", "1.5", " 1", "+1")
		},
		"$N": func() string {
			return g.pick("1", "-1", "7", "1000000", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "x")
		},
		"$f": func() string {
			return g.pick("0", "1.5", "-2.25", "3e10", "inf", "-inf", "+inf", "nan", "0.1", "1e-300", "x", "17179869184")
		},
		"$r": func() string { return g.pick("-inf", "+inf", "0", "(1.5", "-3", "(3e10", "10", "x") },
		"$y": func() string { return g.pick("-", "+", "[m1", "(m2", "[m9", "m3") },
		"$ttl": func() string {
			// Some minutes at least, and seconds apart: GT and LT must not depend on who was quicker.
			return g.pick(strconv.Itoa(100_000+1000*g.rnd.IntN(10_000)), "-1", "0", "abc", "9223372036854775807", "33177117420")
		},
		"$at":  func() string { return g.pick("33177117420", "-1", "0", "abc") },
		"$off": func() string { return g.pick("0", "1", "7", "8", "100", "5000", "-1", "4294967296", "600000000", "x") },
		"$bit": func() string { return g.pick("0", "1", "7", "8", "100", "40000", "-1", "4294967296", "x") },
		"$$":   func() string { return "$" },
		"$id":  func() string { return fmt.Sprintf("%d-%d", 1+g.rnd.IntN(40), g.rnd.IntN(3)) },
		"$rid": func() string { return g.pick("-", "+", "0", "5", "5-1", "(7", "$", "bad", "20-0") },
		"$lon": func() string { return g.pick("13.361389", "15.087269", "2.349014", "-74.005974", "200", "x") },
		"$lat": func() string { return g.pick("38.115556", "37.502669", "48.864716", "40.712776", "-86", "x") },
		"$big": g.big,
		"$sha": func() string {
			return g.pick("e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0000000000000000000000000000000000000000", "x")
		},
		"$lib":  func() string { return g.pick(luaLibraries...) },
		"$dump": func() string { return g.pick(g.dumps...) },
	}
	return g
}

func (g *generator) pick(of ...string) string { return of[g.rnd.IntN(len(of))] }

func (g *generator) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.rnd.Uint32())
	}
	return string(b)
}

// short is a word of at most 200 bytes: empty, a number, text, any bytes, or what looks like RESP.
func (g *generator) short() string {
	switch g.rnd.IntN(6) {
	case 0:
		return ""
	case 1:
		return strconv.Itoa(g.rnd.IntN(2000) - 1000)
	case 2:
		return g.pick("$-1\r\n", "*1\r\n$1\r\nx\r\n", "\r\n", "-ERR no\r\n", "a\x00b", "ünïcödé", "3.14", "1e3", "hello world")
	case 3:
		return g.bytes(g.rnd.IntN(200))
	}
	return "w" + strconv.Itoa(g.rnd.IntN(100))
}

func (g *generator) value() string {
	if g.rnd.IntN(20) == 0 {
		return g.bytes(g.rnd.IntN(5000))
	}
	return g.short()
}

// big is a value of up to 3 MB.
func (g *generator) big() string {
	if !g.large {
		return g.value()
	}
	unit := g.bytes(1 + g.rnd.IntN(100))
	return strings.Repeat(unit, g.rnd.IntN(3_000_000)/len(unit))
}

// next is the next command of the templates.
func (g *generator) next() []string { return g.shaped(g.pick(templates...)) }

// shaped is a command of that template. Of twenty, one gets an argument too many, one too few, and one odd letters.
func (g *generator) shaped(template string) []string {
	shape, exact := strings.CutPrefix(template, "!")
	args := g.fill(strings.Fields(shape))
	if exact {
		return args
	}
	switch g.rnd.IntN(20) {
	case 0:
		args = append(args, g.short())
	case 1:
		args = args[:max(1, len(args)-1)]
	case 2:
		args[0] = strings.ToLower(args[0])
	}
	return args
}

// fill puts arguments in the places of a template: $x is one of that kind, a|b one of both, ?a,b perhaps these, a,b*
// these several times, 'a just that. A template that begins with ! is never changed afterwards.
func (g *generator) fill(words []string) []string {
	var args []string
	for _, word := range words {
		if exact, quoted := strings.CutPrefix(word, "'"); quoted {
			args = append(args, exact)
			continue
		}
		if strings.HasPrefix(word, "?") {
			group := strings.Split(word[1:], ",")
			if g.rnd.IntN(2) == 0 {
				args = append(args, g.fill(group)...)
			}
			continue
		}
		if many, repeat := strings.CutSuffix(word, "*"); repeat && many != "" {
			for range 1 + g.rnd.IntN(4) {
				args = append(args, g.fill(strings.Split(many, ","))...)
			}
			continue
		}
		args = append(args, g.word(word))
	}
	return args
}

func (g *generator) word(word string) string {
	if word == "$script" {
		return luaScripts[g.rnd.IntN(len(luaScripts))]
	}
	if strings.Contains(word, "|") {
		return g.word(g.pick(strings.Split(word, "|")...))
	}
	if expand := g.expand[word]; expand != nil {
		return expand()
	}
	return word
}
