package embedded

import (
	"bytes"
	"slices"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// shapes make of replies that miniredis has in RESP3 as in RESP2 what they are in Redis. In a transaction they are
// miniredis'.
var shapes = map[string]func(reply []byte) []byte{
	"XREAD": streamsAsMap, "XREADGROUP": streamsAsMap,
	"ZRANGE": pairs, "ZREVRANGE": pairs, "ZRANGEBYSCORE": pairs, "ZREVRANGEBYSCORE": pairs,
	"ZPOPMIN": pairs, "ZPOPMAX": pairs, "ZUNION": pairs, "ZINTER": pairs, "ZRANDMEMBER": pairs, "HRANDFIELD": pairs,
}

// reshape answers a command in RESP3 whose reply needs another shape. It returns false of all others.
func (s *Store) reshape(p *server.Peer, cmd string, args []string) bool {
	shape := shapes[cmd]
	one := len(args) == 1 && (cmd == "ZPOPMIN" || cmd == "ZPOPMAX") // whose reply is flat in Redis, too
	if shape == nil || one || !p.Resp3 {
		return false
	}
	p.WriteRaw(string(shape(s.through(p, slices.Concat([]string{cmd}, args)))))
	return true
}

// streamsAsMap is a reply to XREAD, an array of streams with their entries, as a map.
func streamsAsMap(reply []byte) []byte {
	n, _, list := resp.Open(reply)
	switch {
	case !list:
		return reply
	case n < 0:
		return resp.AppendNull(nil, 3)
	}
	out := resp.AppendMap(nil, 3, n)
	for stream := range resp.Elements(reply) {
		_, pair, _ := resp.Open(stream)
		out = append(out, pair...)
	}
	return out
}

// pairs is a list of members and their scores in turn, or a map, as an array of pairs. Other replies stay as they are.
func pairs(reply []byte) []byte {
	all := slices.Collect(resp.Elements(reply))
	scored := len(all) > 1 && all[1][0] == ','
	if !scored && !bytes.HasPrefix(reply, []byte("%")) {
		return reply
	}
	out := resp.AppendArray(nil, len(all)/2)
	for pair := range slices.Chunk(all, 2) {
		out = append(resp.AppendArray(out, len(pair)), bytes.Join(pair, nil)...)
	}
	return out
}
