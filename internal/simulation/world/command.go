package world

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// cutCommand takes the first command off b, which a RESP client of ours has written: an array of bulk strings. size is how many
// bytes it had, 0 when it is not there to its end.
func cutCommand(b []byte) (words []string, size int) {
	count, at := cutNumber(b, 0, '*')
	if at < 0 {
		return nil, 0
	}
	for range count {
		length, body := cutNumber(b, at, '$')
		if body < 0 || len(b) < body+length+2 {
			return nil, 0
		}
		words = append(words, string(b[body:body+length]))
		at = body + length + 2
	}
	return words, at
}

// cutNumber reads a header at b[at:], and says where what follows it begins; -1: it is not all there.
func cutNumber(b []byte, at int, kind byte) (n, next int) {
	end := bytes.IndexByte(b[min(at, len(b)):], '\n')
	if end < 0 {
		return 0, -1
	}
	n, err := strconv.Atoi(string(b[at+1 : at+end-1]))
	if err != nil || b[at] != kind || n < 0 {
		panic("world: this is no command: " + strconv.Quote(string(b[at:])))
	}
	return n, at + end + 1
}

// parseReply takes a RESP2 reply apart, which is whole.
func parseReply(reply string) (value any, rest string) {
	head, rest, _ := strings.Cut(reply, "\r\n")
	text := head[1:]
	switch head[0] {
	case '+':
		return text, rest
	case '-':
		return errors.New(text), rest
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		panic("world: this is no reply: " + strconv.Quote(reply))
	case head[0] == ':':
		return n, rest
	case n < 0:
		return nil, rest
	case head[0] == '$':
		return []byte(rest[:n]), rest[n+2:]
	}
	list := make([]any, n)
	for i := range list {
		list[i], rest = parseReply(rest)
	}
	return list, rest
}

// Slot is the hash slot of a key, by the rule of Redis Cluster.
func Slot(key string) int {
	if open := bytes.IndexByte([]byte(key), '{'); open >= 0 {
		if length := bytes.IndexByte([]byte(key[open+1:]), '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

const slots = 16384

// keysOf are the keys, or sharded channels, by which a command belongs to a slot. Only commands that proxies send themselves are
// known.
func keysOf(command []string) []string {
	if len(command) < 2 {
		return nil
	}
	switch command[0] {
	case "EVAL", "EVALSHA":
		if len(command) > 3 {
			n, _ := strconv.Atoi(command[2])
			return command[3:min(3+n, len(command))]
		}
		return nil
	case "SSUBSCRIBE", "SUNSUBSCRIBE", "DEL", "EXISTS":
		return command[1:]
	case "GET", "SET", "HMGET", "HGETALL", "PTTL", "SPUBLISH", "HSET", "PEXPIRE":
		return command[1:2]
	}
	return nil
}
