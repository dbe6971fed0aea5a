package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// An endpoint that is opened later, and then left to another process, answers nobody any more, whether connected or not, and says nothing of that.
func TestUnlisten(t *testing.T) {
	var log strings.Builder
	tel, err := Start(t.Context(), Options{MetricsListen: "127.0.0.1:0", Later: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if tel.Addr() != nil {
		t.Fatalf("it listens on %v already", tel.Addr())
	}
	if err := tel.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	connected, late := &http.Client{Transport: &http.Transport{}}, &http.Client{Transport: &http.Transport{}}
	defer connected.CloseIdleConnections()
	scrape := func(c *http.Client) error {
		resp, err := c.Head("http://" + tel.Addr().String() + "/metrics")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := scrape(connected); err != nil {
		t.Fatal(err)
	}
	tel.Unlisten()
	for name, c := range map[string]*http.Client{"was connected": connected, "comes late": late} {
		if err := scrape(c); err == nil {
			t.Errorf("who %s is answered", name)
		}
	}
	if err := tel.Shutdown(context.Background()); err != nil || log.Len() > 0 {
		t.Errorf("Shutdown: %v, and the log says %q", err, log.String())
	}
}
