package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// receiver is an OTLP receiver of spans.
type receiver struct {
	t     *testing.T
	mu    sync.Mutex
	spans []*trace.Span
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, post *http.Request) {
	if post.URL.Path != "/v1/traces" {
		return
	}
	var sent trace.TracesData // on the wire it is the same as a request
	body, err := io.ReadAll(post.Body)
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil {
		r.t.Errorf("what is sent is no OTLP: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		for _, in := range of.ScopeSpans {
			r.spans = append(r.spans, in.Spans...)
		}
	}
}

// below is a span of that name, or one that begins so, below another.
func (r *receiver) below(id []byte, name string) *trace.Span {
	r.t.Helper()
	var found *trace.Span
	for _, s := range r.spans {
		if string(s.ParentSpanId) == string(id) && strings.HasPrefix(s.Name, name) {
			found = s
		}
	}
	if found == nil {
		r.t.Fatalf("no span %q is below %x: %v", name, id, r.spans)
	}
	return found
}

// described is what a span says of its verb: attributes, and its status if it is an error.
func described(s *trace.Span) (text string) {
	for _, a := range s.Attributes {
		value := a.Value.GetStringValue()
		if list := a.Value.GetArrayValue(); list != nil {
			var names []string
			for _, v := range list.Values {
				names = append(names, v.GetStringValue())
			}
			value = fmt.Sprint(names)
		}
		text += a.Key + "=" + value + " "
	}
	if s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR {
		text += "error: " + s.Status.Message
	}
	return text
}

// TestTraces: an OTLP receiver gets the spans of a client's verbs, below the span that the client has named, by the time the process
// has ended.
func TestTraces(t *testing.T) {
	t.Parallel()
	r := &receiver{t: t}
	otlp := httptest.NewServer(r)
	defer otlp.Close()
	addr := freeAddr(t)
	cmd := exec.Command(os.Args[0], "--upstream", testredis.Start(t).URL(), "--listen", addr)
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+otlp.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_METRICS_EXPORTER=none")
	p := startCommand(t, cmd)
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	c := p.dial("tcp", addr)
	expect(t, c, "OK", "CLIENT", "SETINFO", "traceparent", "00-"+traceID+"-"+spanID+"-01")
	expect(t, c, "OK", "LOCK", "l")
	expect(t, c, int64(1), "UNLOCK", "l")
	if _, err := c.Do("RENEW", "\xff of others"); err == nil || !strings.Contains(err.Error(), "NOTHELD") {
		t.Error(err)
	}
	expect(t, c, "OK", "MULTILOCK", int64(2), "a", "b")
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	client, _ := hex.DecodeString(spanID)
	for verb, script := range map[string]string{"LOCK": "script acquire", "UNLOCK": "script release"} {
		s := r.below(client, verb)
		for _, of := range []*trace.Span{s, r.below(s.SpanId, script)} {
			if got := hex.EncodeToString(of.TraceId); got != traceID {
				t.Errorf("%s is of the trace %s", of.Name, got)
			}
		}
		if got := described(s); got != "lockproxy.lock=l lockproxy.outcome=ok " {
			t.Errorf("%s: %s", verb, got)
		}
	}
	for verb, want := range map[string]string{
		"RENEW":     "lockproxy.lock=\uFFFD of others lockproxy.outcome=NOTHELD error: NOTHELD",
		"MULTILOCK": "lockproxy.locks=[a b] lockproxy.outcome=ok ",
	} {
		if got := described(r.below(client, verb)); got != want {
			t.Errorf("%s: %s, want %s", verb, got, want)
		}
	}
}
