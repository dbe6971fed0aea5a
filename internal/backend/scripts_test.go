package backend

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func TestWord(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"EVAL", "return 1", "0"}, {"evalsha", ""}, {"SCRIPT", "LOAD", "\r\n$3\r\nabc\r\n"}, {"x"}} {
		var b Batch
		raw := resp.AppendCommand(nil, args...)
		command, _ := resp.ParseReply(raw)
		var words [][]byte
		for _, e := range command.Elems {
			words = append(words, e.Text)
		}
		b.add([]byte("PING\r\n"), [][]byte{[]byte("PING")}, &commandtable.Command{})
		b.add(raw, words, &commandtable.Command{})
		for i := range len(args) + 2 {
			got := b.word(1, i)
			if i >= len(args) && got != nil || i < len(args) && string(got) != args[i] {
				t.Errorf("%q: word %d is %q", args, i, got)
			}
		}
	}
}

// Which commands of a run are sent again when their scripts have been loaded again, by what ran behind them.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	const ran, loaded = scriptcache.Unknown, scriptcache.Loaded
	const absent = (ran + loaded) / 2
	for name, c := range map[string]struct {
		states []scriptcache.State
		slots  []int // below 0: none, or several
		want   []int
	}{
		"all":                          {[]scriptcache.State{loaded, loaded}, []int{1, 1}, []int{0, 1}},
		"something ran behind":         {[]scriptcache.State{loaded, ran, loaded}, []int{1, 1, 1}, []int{2}},
		"something ran in another":     {[]scriptcache.State{loaded, ran, loaded}, []int{1, 2, 1}, []int{0, 2}},
		"something ran in all":         {[]scriptcache.State{loaded, ran, loaded}, []int{1, -1, 1}, []int{2}},
		"one is not known":             {[]scriptcache.State{loaded, absent, loaded}, []int{1, 1, 1}, []int{0, 2}},
		"one in several slots":         {[]scriptcache.State{loaded, loaded}, []int{1, -1}, []int{0}},
		"nothing but what ran":         {[]scriptcache.State{ran, ran}, []int{1, 2}, nil},
		"the last one ran in its slot": {[]scriptcache.State{loaded, loaded, ran}, []int{1, 2, 2}, []int{0}},
	} {
		got := sentAgain(c.states, func(i int) (int, bool) { return c.slots[i], c.slots[i] >= 0 })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
