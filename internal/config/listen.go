package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

func (c Config) listenFaults() (faults []error) {
	if len(c.Listen.Addresses)+len(c.TLS.Listen) == 0 {
		faults = append(faults, errors.New("listen: no address"))
	}
	for i, addr := range c.Listen.Addresses {
		if err := validListen(addr); err != nil {
			faults = append(faults, fmt.Errorf("listen: %w", err))
		}
		if slices.Contains(c.Listen.Addresses[:i], addr) {
			faults = append(faults, fmt.Errorf("listen: %q is named twice", addr))
		}
	}
	for i, addr := range c.TLS.Listen {
		if err := validInet(addr); err != nil {
			faults = append(faults, fmt.Errorf("tls-listen: %w", err))
		}
		if slices.Contains(c.TLS.Listen[:i], addr) || slices.Contains(c.Listen.Addresses, addr) {
			faults = append(faults, fmt.Errorf("tls-listen: %q is named twice", addr))
		}
	}
	return faults
}

// speaksTLS says whether the upstream, or a quorum's node, is reached by TLS.
func (c Config) speaksTLS() bool {
	return c.Upstream.URL.TLS() || slices.ContainsFunc(c.Quorum.Nodes, upstream.URL.TLS)
}

// tlsFaults finds settings that lack another, or would do nothing: who gives those means to be safer than he would be.
func (c Config) tlsFaults() (faults []error) {
	for _, f := range []struct {
		bad   bool
		fault string
	}{
		{len(c.TLS.Listen) > 0 && len(c.TLS.Certs) == 0, "tls-listen: needs tls-cert and tls-key"},
		{len(c.TLS.Listen) == 0 && len(c.TLS.Certs)+len(c.TLS.Keys) > 0, "tls-cert, tls-key: do nothing without tls-listen"},
		{len(c.TLS.Listen) == 0 && c.TLS.ClientCA+c.TLS.ClientAuth != "", "tls-client-ca, tls-client-auth: do nothing without tls-listen"},
		{len(c.TLS.Certs) != len(c.TLS.Keys), "tls-key: there must be as many as tls-cert"},
		{c.TLS.ClientCA == "" && c.AsksClients(), "tls-client-auth: needs tls-client-ca"},
		{c.TLS.ClientCA != "" && !c.AsksClients(), "tls-client-ca: does nothing with tls-client-auth no"},
		{c.Listen.ProxyProtocol == "off" && len(c.Listen.ProxyFrom) > 0, "proxy-protocol-from: does nothing with proxy-protocol off"},
		{(c.Upstream.TLSCert == "") != (c.Upstream.TLSKey == ""), "upstream-tls-cert, upstream-tls-key: one needs the other"},
		{c.Upstream.TLSCA+c.Upstream.TLSCert+c.Upstream.TLSKey+c.Upstream.TLSServerName != "" && !c.speaksTLS(),
			"upstream-tls-ca, -cert, -key, -server-name: do nothing without a rediss:// upstream or quorum node"},
	} {
		if f.bad {
			faults = append(faults, errors.New(f.fault))
		}
	}
	return faults
}

// AsksClients says whether clients of tls-listen are asked for certificates.
func (c Config) AsksClients() bool {
	return c.TLS.ClientAuth == "optional" || c.TLS.ClientAuth == "required" || c.TLS.ClientAuth == "" && c.TLS.ClientCA != ""
}
