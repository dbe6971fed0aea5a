package cluster

import (
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// integerOf is the number of an integer reply, or of a string with one.
func integerOf(r resp.Reply) (int64, bool) {
	n, err := strconv.ParseInt(string(r.Text), 10, 64)
	return n, err == nil
}

// isError says that the reply is one.
func isError(r resp.Reply) bool { return r.Kind == '-' || r.Kind == '!' }

// field finds what stands after a name in a map, or in an array that stands for one.
func field(r resp.Reply, name string) resp.Reply {
	for i := 0; i+1 < len(r.Elems); i += 2 {
		if string(r.Elems[i].Text) == name {
			return r.Elems[i+1]
		}
	}
	return resp.Reply{}
}

// text is what stands after a name, as text.
func text(r resp.Reply, name string) string { return string(field(r, name).Text) }
