package resp

import (
	"math"
	"testing"
)

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendSimple([]byte("x"), "OK"), "x+OK\r\n"},
		{AppendSimple(nil, "a\r\nb\xff"), "+a  b\xff\r\n"},
		{AppendError(nil, "ERR a\nb"), "-ERR a b\r\n"},
		{AppendInt(nil, math.MinInt64), ":-9223372036854775808\r\n"},
		{AppendBulk(nil, []byte("a\r\n")), "$3\r\na\r\n\r\n"},
		{AppendBulk(nil, nil), "$0\r\n\r\n"},
		{AppendBulkString(nil, "abc"), "$3\r\nabc\r\n"},
		{AppendNull(nil, 2), "$-1\r\n"},
		{AppendNull(nil, 3), "_\r\n"},
		{AppendArray(nil, 12), "*12\r\n"},
		{AppendMap(nil, 2, 3), "*6\r\n"},
		{AppendMap(nil, 3, 3), "%3\r\n"},
		{AppendSet(nil, 2, 3), "*3\r\n"},
		{AppendSet(nil, 3, 3), "~3\r\n"},
		{AppendPush(nil, 2, 3), "*3\r\n"},
		{AppendPush(nil, 3, 3), ">3\r\n"},
		{AppendVerbatim(nil, 2, "txt", "abc"), "$3\r\nabc\r\n"},
		{AppendVerbatim(nil, 3, "txt", "abc"), "=7\r\ntxt:abc\r\n"},
		{AppendCommand(nil, "SET", "a", ""), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n"},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
