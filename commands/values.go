package commands

import (
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// What replies of several parts are made of, beside text, whole numbers, times (in ms), and truths (1 or 0).
type (
	fields []field  // a map
	list   []any    // an array
	set    []string // of simple strings
	simple string
)

// field is one of a map.
type field struct {
	name  string
	value any
}

// appendValue appends a value, which may have others in it.
func appendValue(out []byte, proto int, value any) []byte {
	switch v := value.(type) {
	case string:
		return resp.AppendBulkString(out, v)
	case int:
		return resp.AppendInt(out, int64(v))
	case int64:
		return resp.AppendInt(out, v)
	case time.Duration:
		return resp.AppendInt(out, v.Milliseconds())
	case bool:
		if v {
			return resp.AppendInt(out, 1)
		}
		return resp.AppendInt(out, 0)
	case *string:
		if v == nil {
			return resp.AppendNull(out, proto)
		}
		return resp.AppendBulkString(out, *v)
	case nil:
		return resp.AppendNull(out, proto)
	case simple:
		return resp.AppendSimple(out, string(v))
	case set:
		out = resp.AppendSet(out, proto, len(v))
		for _, word := range v {
			out = resp.AppendSimple(out, word)
		}
		return out
	case list:
		out = resp.AppendArray(out, len(v))
		for _, one := range v {
			out = appendValue(out, proto, one)
		}
		return out
	case fields:
		out = resp.AppendMap(out, proto, len(v))
		for _, f := range v {
			out = appendValue(resp.AppendBulkString(out, f.name), proto, f.value)
		}
		return out
	}
	return resp.AppendBulkString(out, fmt.Sprint(value))
}
