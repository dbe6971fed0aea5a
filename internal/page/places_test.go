package page

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Who is refused gives the place of its connection back at once: strangers do not lock operators out.
func TestRefusedGiveTheirPlacesBack(t *testing.T) {
	const token = "correct horse battery"
	o := (&engine{}).options()
	o.Entry.Token = func() string { return token }
	p, at := served(t, o)
	requests := []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "GET /lock HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: cross-site\r\n\r\n"}
	for i := range mostConnections {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.server.Addr)
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
