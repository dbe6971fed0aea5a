package harness

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Decode turns a raw reply into Go values: string, int64, nil, []any, and map[string]any for RESP3's maps.
func Decode(t testing.TB, raw string) any {
	t.Helper()
	v, rest := decodeNext(t, raw)
	if rest != "" {
		t.Fatalf("more than one frame: %q", raw)
	}
	return v
}

func decodeNext(t testing.TB, raw string) (v any, rest string) {
	t.Helper()
	line, rest, _ := strings.Cut(raw, "\r\n")
	n, _ := strconv.ParseInt(line[1:], 10, 64)
	switch line[0] {
	case '+':
		return line[1:], rest
	case ':':
		return n, rest
	case '_':
		return nil, rest
	case '$':
		if n < 0 {
			return nil, rest
		}
		return rest[:n], rest[n+2:]
	case '*':
		list := []any{}
		for range n {
			v, rest = decodeNext(t, rest)
			list = append(list, v)
		}
		return list, rest
	case '%':
		m := map[string]any{}
		for range n {
			var k any
			k, rest = decodeNext(t, rest)
			m[fmt.Sprint(k)], rest = decodeNext(t, rest)
		}
		return m, rest
	}
	t.Fatalf("unexpected in this reply: %q", raw)
	return nil, ""
}

// Object reads a map of either version: RESP2 has it as a flat array. A list of maps is told by the caller.
func Object(t testing.TB, v any) map[string]any {
	t.Helper()
	if m, ok := v.(map[string]any); ok {
		return m
	}
	list, ok := v.([]any)
	if !ok || len(list)%2 != 0 {
		t.Fatalf("%v is no map", v)
	}
	m := map[string]any{}
	for i := 0; i < len(list); i += 2 {
		m[list[i].(string)] = list[i+1]
	}
	return m
}

func Objects(t testing.TB, v any) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, e := range v.([]any) {
		out = append(out, Object(t, e))
	}
	return out
}

// Split takes a reply apart: the line that heads an aggregate and its elements, or all of it.
func Split(frame string) (head string, elements []string) {
	if frame == "" || !strings.Contains("*~%>", frame[:1]) {
		return frame, nil
	}
	w := &Wire{R: bufio.NewReader(strings.NewReader(frame))}
	head, _ = w.R.ReadString('\n')
	for {
		var b strings.Builder
		if w.frame(&b) != nil {
			return head, elements
		}
		elements = append(elements, b.String())
	}
}

func Quoted(v any) string {
	text := fmt.Sprintf("%q", v)
	if len(text) > 600 {
		return fmt.Sprintf("%s… (%d bytes)", text[:600], len(text))
	}
	return text
}

func IsErrorFrame(frame string) bool { return frame != "" && (frame[0] == '-' || frame[0] == '!') }

// Number reads an integer reply.
func Number(t testing.TB, reply string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(reply, ":"), "\r\n"), 10, 64)
	if err != nil || reply[0] != ':' {
		t.Fatalf("%q is no integer reply", reply)
	}
	return n
}

// EncodeAll writes commands behind each other.
func EncodeAll(commands [][]string) string {
	var b []byte
	for _, args := range commands {
		b = encode(b, args)
	}
	return string(b)
}

// encode writes a command behind b.
func encode(b []byte, args []string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(a)), 10), "\r\n"...)
		b = append(append(b, a...), "\r\n"...)
	}
	return b
}

// Keys lists every key past the proxy.
func Keys(t testing.TB, s *testredis.Server) []string {
	t.Helper()
	k, err := redis.Strings(s.Do(t, "KEYS", "*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Bulks are words as bulk strings, each a frame of its own.
func Bulks(words ...string) (frames []string) {
	for _, w := range words {
		frames = append(frames, fmt.Sprintf("$%d\r\n%s\r\n", len(w), w))
	}
	return frames
}
