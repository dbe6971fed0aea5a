package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Pages ask each other with a signature that only who has the token can make. The token itself goes nowhere: where others
// are comes from CLIENT LIST, and where Redis has one user only, any client may be named there. So a signature is for one
// proxy at one address. The answer is signed, too, with the certificate that was shown: then nobody between the two has
// read or changed it.

const (
	scheme       = "Lockproxy "
	answerHeader = "Lockproxy-Signature"
	// signedFor is how far a signature's time may be from this machine's. Each counts once; so many are remembered.
	signedFor, mostSigned = 30 * time.Second, 4096
)

// sign makes the signature of some texts, none of which has a line feed but the last one.
func sign(token string, texts ...string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(mac.Sum(nil))
}

// target signs what a question is about: which proxy, at which address, and what.
func target(token, id, address, method, uri, stamp string) string {
	return sign(token, "ask", id, address, method, uri, stamp)
}

// signAnswer signs the answer to a question, over a connection where that certificate was shown; "": none.
func signAnswer(token, asked, certificate, body string) string {
	return sign(token, "answer", asked, certificate, body)
}

// shown is the SHA-256 of the certificate that the other side has shown, in hex; "": it has no TLS.
func shown(s *tls.ConnectionState) string {
	if s == nil {
		return ""
	}
	return fingerprint(s.PeerCertificates[0].Raw)
}

// newStamp makes a signature's time, and what makes it another than all others.
func newStamp(now time.Time) string {
	return strconv.FormatInt(now.UnixMilli(), 10) + "-" + rand.Text()
}

// signed are the signatures that were taken.
type signed struct {
	mu   sync.Mutex // guards taken
	last map[string]time.Time
}

// take says whether a signature was not taken before, and notes it.
func (s *signed) take(signature string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) >= mostSigned {
		for old, at := range s.last {
			if now.Sub(at) > 2*signedFor {
				delete(s.last, old)
			}
		}
	}
	if _, again := s.last[signature]; again || len(s.last) >= mostSigned {
		return false
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[signature] = now
	return true
}

// signature returns the signature of a request that another proxy has made with the token; "": it is none. It is for
// what is read as JSON.
func (g *guard) signature(r *http.Request) string {
	stamp, got, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), scheme), " ")
	ms, _, _ := strings.Cut(stamp, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".json") {
		return ""
	}
	now, self := time.Now(), g.self()
	want := target(g.Token(), self.ID, self.Page, r.Method, r.RequestURI, stamp)
	if now.Sub(time.UnixMilli(at)).Abs() > signedFor || !hmac.Equal([]byte(want), []byte(got)) || !g.signed.take(got, now) {
		return ""
	}
	return got
}

// signing is an answer that is signed; it is written at once.
type signing struct {
	http.ResponseWriter
	token, asked, certificate string
}

func (w *signing) Write(p []byte) (int, error) {
	w.Header().Set(answerHeader, signAnswer(w.token, w.asked, w.certificate, string(p)))
	return w.ResponseWriter.Write(p)
}
