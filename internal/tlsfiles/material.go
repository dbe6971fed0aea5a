package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Material is what the files held at one moment. It is never changed.
type Material struct {
	Certificates []tls.Certificate // the first one is for clients that name no server, or an unknown one
	Authorities  *x509.CertPool    // nil: no CA file
	Password     string            // "": no such file
	Users        map[string]string // the password of each; nil: no such file

	Ends  map[string]time.Time // by file, when the first certificate in it ends; of a chain, and of authorities, too
	Since time.Time            // when it was taken
}

// parse reads contents in the order of read.
func (n Names) parse(contents [][]byte) (*Material, error) {
	m := &Material{Ends: map[string]time.Time{}, Since: time.Now()}
	for i, name := range n.Certs {
		pair, err := tls.X509KeyPair(contents[i], contents[len(n.Certs)+i])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", name, n.Keys[i], err)
		}
		m.Certificates = append(m.Certificates, pair)
		for _, der := range pair.Certificate {
			if cert, err := x509.ParseCertificate(der); err == nil { // what no client can read ends nothing
				m.endsBy(name, cert)
			}
		}
	}
	var err error
	if n.Password != "" {
		m.Password, err = password(contents[len(contents)-1])
		if err == nil && len(m.Password) < n.Least {
			err = fmt.Errorf("has less than %d bytes", n.Least)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Password, err)
		}
	}
	if n.Users != "" {
		if m.Users, err = users(contents[len(contents)-1]); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Users, err)
		}
	}
	if n.CA == "" {
		return m, nil
	}
	all, err := authorities(contents[len(contents)-1])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.CA, err)
	}
	m.Authorities = x509.NewCertPool()
	for _, cert := range all {
		m.Authorities.AddCert(cert)
		m.endsBy(n.CA, cert)
	}
	return m, nil
}

// endsBy notes the end of a certificate in a file.
func (m *Material) endsBy(file string, cert *x509.Certificate) {
	if end, has := m.Ends[file]; !has || cert.NotAfter.Before(end) {
		m.Ends[file] = cert.NotAfter
	}
}

// password is the only line there is. Its end is not a part of it: editors and echo put one there.
func password(content []byte) (string, error) {
	line := bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
	switch {
	case len(line) == 0:
		return "", errors.New("holds no password")
	case bytes.ContainsAny(line, "\r\n\x00"):
		return "", errors.New("holds more than one line")
	}
	return string(line), nil
}

// users reads a line for each user: the name, a space, and the password, which is all that follows. Empty lines and those that begin with
// # are left out. The errors show no password.
func users(content []byte) (map[string]string, error) {
	all := map[string]string{}
	if bytes.ContainsRune(content, 0) {
		return nil, errors.New("holds a zero byte")
	}
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		name, password, _ := strings.Cut(line, " ")
		if name == "" || password == "" || strings.ContainsRune(name, '\t') {
			return nil, fmt.Errorf("line %d is not a user, a space and a password", n)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("line %d: there is a password of %q before", n, name)
		}
		all[name] = password
	}
	if len(all) == 0 { // most likely the file was emptied by a mistake: each certificate would become the default user
		return nil, errors.New("holds no user")
	}
	return all, nil
}

// authorities reads a bundle, all of it: x509's own AppendCertsFromPEM passes over what it does not understand, and so
// would take half a file for a whole one.
func authorities(bundle []byte) (all []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, cert)
	}
	switch {
	case bytes.Contains(bundle, []byte("-----BEGIN")):
		return nil, errors.New("ends within a certificate")
	case all == nil:
		return nil, errors.New("holds no certificate")
	}
	return all, nil
}

// Server is a server's configuration that always uses the newest material: each client is given the first certificate
// that fits the name it asks for. With an auth that looks at certificates, a CA file is needed.
func (f *Files) Server(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := f.Now()
			return &tls.Config{
				MinVersion:   tls.VersionTLS12,
				Certificates: now.Certificates,
				ClientCAs:    now.Authorities,
				ClientAuth:   auth,
				// A session resumed would let a client in by a certificate whose authority has been taken away.
				SessionTicketsDisabled: auth != tls.NoClientCert,
			}, nil
		},
	}
}

// Client returns base with the newest material: the authorities to trust instead of the system's, and the first
// certificate to show, whatever the server says it would like.
func (f *Files) Client(base *tls.Config) *tls.Config {
	c, now := base.Clone(), f.Now()
	if now.Authorities != nil {
		c.RootCAs = now.Authorities
	}
	if len(now.Certificates) > 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &now.Certificates[0], nil
		}
	}
	return c
}
