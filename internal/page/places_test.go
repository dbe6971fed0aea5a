package page

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Clients who are refused give the places of their connections back at once, and silent ones when others need them: they lock no operator out.
func TestRefusedGiveTheirPlacesBack(t *testing.T) {
	const token = "correct horse battery"
	o := (&engine{}).options()
	o.Credentials.Token = func() string { return token }
	p, at := served(t, o)
	requests := []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "GET /lock HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: cross-site\r\n\r\n"}
	for i := range 100 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, requests[i%len(requests)]); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
			t.Fatalf("%.20q is answered %.20q, and the connection is kept: %v", requests[i%len(requests)], answer, err)
		}
	}
	for range 200 { // who say nothing have no place that somebody else needs
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", at+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann", token)
	w, err := (&http.Client{Timeout: 5 * time.Second}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK || w.Close {
		t.Errorf("%d, closed: %v", w.StatusCode, w.Close)
	}
}
