package page

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoPathIsOpen asks for all that the page answers, by all methods, as those do who may not see it. What is new in
// routes is tried with the rest.
func TestNoPathIsOpen(t *testing.T) {
	const token, look = "correct horse battery", "window shopping only"
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	unsafe := func(method string) bool { return method != "GET" && method != "HEAD" && method != "OPTIONS" }
	for _, c := range []struct {
		name         string
		token        bool // one is needed
		certificates bool // one is needed
		change       func(*http.Request)
		refused      func(method, path string) int // how it is refused; 0: it is not
	}{
		{"no token", true, false, func(*http.Request) {}, func(string, string) int { return 401 }},
		{"a wrong token", true, false, func(r *http.Request) { r.SetBasicAuth("ann", token[1:]) }, func(string, string) int { return 401 }},
		{"a wrong bearer", true, false, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") }, func(string, string) int { return 401 }},
		{"the token of those who look", true, false, func(r *http.Request) { r.SetBasicAuth("ann", look) }, func(method, _ string) int {
			return either(method == "GET" || method == "HEAD", 0, 403)
		}},
		{"no certificate", false, true, func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, func(string, string) int { return 403 }},
		{"a certificate that nobody vouches for", false, true, func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
		}, func(string, string) int { return 403 }},
		{"a rebound host", false, false, func(r *http.Request) { r.Host = "evil.example:9181" }, func(string, string) int { return 403 }},
		{"a foreign site", false, false, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, func(method, path string) int {
			return either(path != "/" || unsafe(method), 403, 0) // a link may lead to the first page
		}},
		{"a foreign site with the token", true, false, func(r *http.Request) {
			r.SetBasicAuth("ann", token)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, func(method, path string) int { return either(path != "/" || unsafe(method), 403, 0) }},
		{"a foreign origin", false, false, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, func(method, _ string) int {
			return either(unsafe(method), 403, 0)
		}},
		{"a foreign origin with the token", true, false, func(r *http.Request) {
			r.SetBasicAuth("ann", token)
			r.Header.Set("Origin", "null")
		}, func(method, _ string) int { return either(unsafe(method), 403, 0) }},
	} {
		e := &engine{}
		o := e.options()
		o.Credentials.Certificates = c.certificates
		if c.token {
			o.Credentials.Token, o.Credentials.View = func() string { return token }, func() string { return look }
		}
		p := New(o)
		for _, route := range p.routes() {
			_, path, _ := strings.Cut(route.pattern, " ")
			path = strings.TrimSuffix(path, "{$}")
			for _, method := range methods {
				want := c.refused(method, path)
				if want == 0 {
					continue
				}
				r := httptest.NewRequestWithContext(t.Context(), method, home+path+"?db=0&name=a&page=/&sure=yes&id=1&addr=a&proxy=the-id&level=debug", nil)
				c.change(r)
				w := httptest.NewRecorder()
				p.Handler().ServeHTTP(w, r)
				if w.Code != want || w.Body.Len() > 300 || w.Header().Get("Content-Security-Policy") == "" {
					t.Errorf("%s: %s %s is answered %d, not %d: %.100s", c.name, method, path, w.Code, want, w.Body)
				}
			}
		}
		if len(e.forced)+len(e.killed) != 0 {
			t.Errorf("%s: forced %q, killed %q", c.name, e.forced, e.killed)
		}
	}
}
