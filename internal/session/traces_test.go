package session

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// traceparent is one of the trace whose id is so many of this digit.
func traceparent(digit string) string {
	return "00-" + strings.Repeat(digit, 32) + "-" + strings.Repeat(digit, 16) + "-01"
}

const badParent = "-ERR traceparent must be 00-<trace id>-<span id>-<flags> in lower-case hexadecimal digits, or empty.\r\n"

// The spans of a client's verbs are below the parent that it has named, in the order in which it has said so. No other test runs
// meanwhile, because all spans are recorded.
func TestSpansHaveTheClientsParent(t *testing.T) {
	recorded := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorded))
	otel.SetTracerProvider(provider)
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		provider.Shutdown(context.Background())
	}()
	_, p := startBoth(t, nil)
	other := dialWire(t, p.addr)
	for _, proto := range []string{"2", "3"} {
		recorded.Reset()
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		var pipeline []byte
		var want, spans []string
		say := func(reply, parent string, words ...string) {
			pipeline = resp.AppendCommand(pipeline, words...)
			want = append(want, reply)
			if parent != "" {
				verb := strings.Fields(words[0])[0]
				spans = append(spans, fmt.Sprintf("%s below %s", verb, strings.Repeat(parent, 16)))
			}
		}
		setInfo := func(reply, value string) { say(reply, "", "CLIENT", "SETINFO", "traceparent", value) }
		const ok, none = "+OK\r\n", "0"
		say(ok, none, "LOCK", "l")
		setInfo(ok, traceparent("a"))
		say(ok, "a", "LOCK", "l", "BLOCK", "10")
		say(ok, "", "SET", "k", "v")
		setInfo(ok, traceparent("b"))
		setInfo(badParent, traceparent("c")+"0") // changes nothing
		say(":1\r\n", "b", "RENEW", "l")
		say("$1\r\nv\r\n", "b", "FENCED", "l", "GET", "k")
		say(ok, "b", "MULTILOCK", "2", "m", "n")
		say(ok, "b", "MULTILOCK", "2", "o", "p", "BLOCK", "10")
		say(":4\r\n", "b", "MULTIUNLOCK", "4", "m", "n", "o", "p")
		say(ok, "", "MULTI")
		setInfo("+QUEUED\r\n", traceparent("c"))
		say(ok, "", "DISCARD")
		say(":0\r\n", "b", "UNLOCK", "l")
		say(ok, "", "MULTI")
		setInfo("+QUEUED\r\n", traceparent("d"))
		say("*1\r\n+OK\r\n", "", "EXEC")
		say(":1\r\n", "d", "UNLOCK", "l")
		setInfo(ok, "")
		say(ok, none, "LOCK", "l")
		setInfo(ok, traceparent("e"))
		say("+RESET\r\n", "", "RESET")
		say(ok, none, "LOCK", "l", "BLOCK", "60000")
		say(":1\r\n", none, "UNLOCK", "l")
		w.raw(pipeline)
		for _, reply := range want {
			w.want(reply)
		}
		other.expect("+OK\r\n", "LOCK", "others")
		other.expect(":1\r\n", "UNLOCK", "others")
		spans = append(spans, "LOCK below 0000000000000000", "UNLOCK below 0000000000000000")

		var got []string
		for _, span := range recorded.GetSpans() {
			if span.Name == strings.ToUpper(span.Name) {
				got = append(got, fmt.Sprintf("%s below %s", span.Name, span.Parent.SpanID()))
			}
		}
		if !slices.Equal(got, spans) {
			t.Errorf("RESP%s: got %q, want %q", proto, got, spans)
		}
	}
}

// Redis never gets a traceparent to queue, whether its commands are known or not.
func TestTraceparentStaysHere(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startRedis(t).URL(), nil)
	<-p.srv.facts.known
	for _, table := range []*answers{p.srv.facts.table.Load(), newAnswers(nil, nil, nil)} {
		for value, want := range map[string]client.Setting{
			traceparent("a"): {Of: client.SettingParent, Value: traceparent("a")}, "": {Of: client.SettingParent}, "malformed": {},
		} {
			raw := resp.AppendCommand(nil, "CLIENT", "SETINFO", "TraceParent", value)
			args := bytesOf([]string{"CLIENT", "SETINFO", "TraceParent", value})
			c, _ := table.findRow(args)
			sent, e := commands.Queued(c, redcon.Command{Raw: raw, Args: args}, "me", table.Learned())
			set, _ := e.(dedicated.Setting)
			if bytes.Contains(bytes.ToLower(sent), []byte("traceparent")) || client.Setting(set) != want {
				t.Errorf("%q: Redis gets %q, the setting is %v", value, sent, set)
			}
		}
	}
}
