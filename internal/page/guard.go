package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Credentials is who may see the page.
type Credentials struct {
	Token        func() string // whoever shows it may see the page, free locks and close clients; nil: there is none
	View         func() string // whoever shows this one may see the page; nil: there is none
	Certificates bool          // TLS has asked for one, and looked at it
}

// openToAll says that who can connect may see it: it must be on loopback.
func (e Credentials) openToAll() bool { return e.Token == nil && e.View == nil && !e.Certificates }

// guard is in front of the page.
type guard struct {
	Credentials
	log    *slog.Logger
	events *events.Log
}

// The page needs nothing but what the proxy serves itself, and nobody else may use it in a page of his own.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
		"base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	// The address has names of locks; with no-referrer, forms would have no origin.
	"Referrer-Policy": "same-origin",
	"Cache-Control":   "no-store",
}

// protect lets those through who may.
func (g *guard) protect(next http.Handler) http.Handler {
	return g.admit(http.NewCrossOriginProtection().Handler(next))
}

func (g *guard) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		switch {
		case g.openToAll() && !local(r.Host):
			// Another's name that leads here is how a page in the browser would reach what listens on its machine (DNS
			// rebinding).
			refuse(w, "this page is for localhost", http.StatusForbidden)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.URL.Path != "/":
			// A page of somebody else's, in the browser of one who may see this one, would make the proxy ask Redis.
			refuse(w, "a link from elsewhere leads to the first page only", http.StatusForbidden)
		case g.Certificates && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
			refuse(w, "a client certificate is needed", http.StatusForbidden)
		case g.Token == nil && g.View == nil, shows(r, g.Token):
			next.ServeHTTP(w, r)
		case !shows(r, g.View):
			g.logWrongToken(r)
			w.Header().Set("WWW-Authenticate", `Basic realm="lockproxy: any name, and the token as password", charset="UTF-8"`)
			refuse(w, "the token is needed, as a password or as Authorization: Bearer", http.StatusUnauthorized)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w, "this token is for those who look: nothing was done", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers and has the connection closed: clients without a right that keep theirs would have all places, and operators none.
func refuse(w http.ResponseWriter, text string, code int) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, code)
}

// local says whether a Host header is that of loopback.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// shows says whether a request has a token; nil is none. It takes as long whatever the token is, and whatever was sent.
func shows(r *http.Request, token func() string) bool {
	if token == nil {
		return false
	}
	_, sent, basic := r.BasicAuth()
	bearer := false
	if !basic {
		sent, bearer = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	want, got := sha256.Sum256([]byte(token())), sha256.Sum256([]byte(sent))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && (basic || bearer)
}

// logWrongToken counts a wrong token and has the log say where it came from. A browser that has not asked for it yet comes with
// none.
func (g *guard) logWrongToken(r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		telemetry.LoginsFailed.Add(1)
		g.log.Warn("a wrong token for the page for operators", "from", r.RemoteAddr)
		g.events.Add(events.Event{At: time.Now(), Kind: events.Login, Client: events.Client{Addr: r.RemoteAddr}, Reason: "a wrong token for the page"})
	}
}

// who is who a request is from, as far as is known: the certificate's name, or the name that came with the token.
func (g *guard) who(r *http.Request) string {
	if g.Certificates {
		return display.Shown(r.TLS.PeerCertificates[0].Subject.CommonName)
	}
	name, _, _ := r.BasicAuth()
	return display.Shown(name)
}
