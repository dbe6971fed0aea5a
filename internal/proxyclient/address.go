package proxyclient

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/lockproxy/lockproxy/internal/tlsfiles"
	"github.com/lockproxy/lockproxy/upstream"
)

// Help is what a command's help says of the flags that name the proxy.
const Help = `  --address URL     the lockproxy to ask: host:port, redis://user:password@host:port,
                    rediss://... or unix:///path; also LOCKPROXY_ADDRESS
                    (127.0.0.1:6380)
  --tls             by TLS, as with rediss://
  --cacert FILE     whose certificates are believed (the system's)
  --cert FILE       the certificate to show
  --key FILE        its key
`

// address is where a proxy is, and how its connections are secured.
type address struct {
	at                     upstream.Target
	authorities, cert, key string // files in PEM, which are read for each connection; "": none
}

// Flags adds the flags of Help. After they are parsed, the result is a client whose connections have that name.
func Flags(fs *flag.FlagSet, name string) func() (*Client, error) {
	c := &Client{name: name}
	at, secure := fs.String("address", "", ""), fs.Bool("tls", false, "")
	fs.StringVar(&c.authorities, "cacert", "", "")
	fs.StringVar(&c.cert, "cert", "", "")
	fs.StringVar(&c.key, "key", "", "")
	return func() (_ *Client, err error) {
		c.at, err = upstream.ParseProxy(*at)
		if err != nil {
			return nil, fmt.Errorf("--address: %w", err)
		}
		if *secure && c.at.TLS == nil {
			c.at.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		switch {
		case c.at.TLS == nil && c.authorities+c.cert+c.key != "":
			return nil, errors.New("--cacert, --cert, --key: only with --tls or rediss://")
		case (c.cert == "") != (c.key == ""):
			return nil, errors.New("--cert, --key: not one without the other")
		}
		_, err = c.target()
		return c, err
	}
}

// target is the address, with what the files hold now: they may be renewed while a command runs.
func (a *address) target() (t upstream.Target, err error) {
	if t = a.at; t.TLS == nil {
		return t, nil
	}
	names := tlsfiles.Names{CA: a.authorities}
	if a.cert != "" {
		names.Certs, names.Keys = []string{a.cert}, []string{a.key}
	}
	files, err := tlsfiles.Open(names, slog.New(slog.DiscardHandler))
	if err != nil {
		return t, fmt.Errorf("--cacert, --cert, --key: %w", err)
	}
	t.TLS = files.Client(t.TLS)
	return t, nil
}
