package telemetry

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections that strangers keep open do not take all files of the process, nor keep others waiting: the oldest are closed for newer ones.
func TestPlacesOfTheEndpoint(t *testing.T) {
	tel := start(t, Options{MetricsListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	ask := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tel.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	answered := func(c net.Conn, within time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	var kept []net.Conn
	for range 200 {
		kept = append(kept, ask())
		if err := answered(kept[len(kept)-1], 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	_ = kept[0].SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, kept[0]); os.IsTimeout(err) {
		t.Error("the oldest of 200 connections is kept")
	}
}

// stuck is a collector that takes its time.
type stuck struct{ collecting, goOn chan struct{} }

func (s stuck) Describe(d chan<- *prometheus.Desc) { d <- prometheus.NewDesc("stuck", "", nil, nil) }

func (s stuck) Collect(chan<- prometheus.Metric) {
	s.collecting <- struct{}{}
	<-s.goOn
}

// Only so many scrapes are worked at at once, since each collects everything.
func TestScrapesAtOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := stuck{make(chan struct{}, mostScrapes+1), make(chan struct{})}
	registry.MustRegister(s)
	h := routes(registry, nil, slog.New(slog.DiscardHandler))
	codes := make(chan int, mostScrapes+1)
	scrape := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", strings.NewReader("")))
		codes <- w.Code
	}
	for range mostScrapes {
		go scrape()
		<-s.collecting
	}
	go scrape()
	select {
	case code := <-codes:
		if code != http.StatusServiceUnavailable {
			t.Errorf("one too many is answered %d", code)
		}
	case <-s.collecting:
		t.Error("one too many collects")
		codes <- 0
	}
	close(s.goOn)
	for range mostScrapes {
		<-codes
	}
}
