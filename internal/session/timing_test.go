package session

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// How long commands take is told by their family, each of a pipeline counted: Redis' part, and the proxy's, which is known once the
// client has its replies, if nothing in the pipeline was answered by the proxy.
func TestCommandsAreTimed(t *testing.T) {
	at := "127.0.0.1:" + strconv.Itoa(testredis.FreePort(t))
	tel, err := telemetry.Start(context.Background(), telemetry.Options{MetricsListen: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Shutdown(context.Background()) })
	_, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.raw([]byte("PFADD h a\r\nPFADD h b\r\nGEOPOS g a\r\nGEOPOS g a\r\nGEOPOS g a\r\n"))
	for range 5 {
		w.frame()
	}
	w.raw([]byte("GEOPOS g a\r\nCLIENT ID\r\n"))
	for range 2 {
		w.frame()
	}
	for _, call := range []string{"MULTI", "BLPOP q 1", "GEOPOS g a", "EXEC", "BLPOP q 0.01"} { // the last one waits
		w.do(strings.Fields(call)...)
	}
	w.do("CLIENT", "ID") // what came before is over
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	page, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`lockproxy_command_duration_seconds_count{family="geo",part="upstream"} 5`,
		`lockproxy_command_duration_seconds_count{family="geo",part="proxy"} 3`,
		`lockproxy_command_duration_seconds_count{family="string",part="upstream"} 2`,
		`lockproxy_command_duration_seconds_count{family="transaction",part="upstream"} 2`,
		`lockproxy_command_duration_seconds_count{family="list",part="upstream"} 1`,
	} {
		if !strings.Contains(string(page), "\n"+want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(string(page)) {
			if strings.Contains(line, "command_duration_seconds_count") {
				t.Log(line)
			}
		}
	}
}
