package backend

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
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
