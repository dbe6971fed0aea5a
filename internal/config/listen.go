package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

func (c Config) listenFaults() (faults []error) {
	if len(c.Listen)+len(c.TLSListen) == 0 {
		faults = append(faults, errors.New("listen: no address"))
	}
	for i, addr := range c.Listen {
		if err := validListen(addr); err != nil {
			faults = append(faults, fmt.Errorf("listen: %w", err))
		}
		if slices.Contains(c.Listen[:i], addr) {
			faults = append(faults, fmt.Errorf("listen: %q is named twice", addr))
		}
	}
	for i, addr := range c.TLSListen {
		if err := validHostPort(addr); err != nil {
			faults = append(faults, fmt.Errorf("tls-listen: %w", err))
		}
		if slices.Contains(c.TLSListen[:i], addr) || slices.Contains(c.Listen, addr) {
			faults = append(faults, fmt.Errorf("tls-listen: %q is named twice", addr))
		}
	}
	return faults
}

// speaksTLS says whether the upstream, or a quorum's node, is reached by TLS.
func (c Config) speaksTLS() bool {
	return c.Upstream.TLS() || slices.ContainsFunc(c.Quorum, upstream.URL.TLS)
}

// tlsFaults finds settings that lack another, or would do nothing: who gives those means to be safer than he would be.
func (c Config) tlsFaults() (faults []error) {
	for _, f := range []struct {
		bad   bool
		fault string
	}{
		{len(c.TLSListen) > 0 && len(c.TLSCert) == 0, "tls-listen: needs tls-cert and tls-key"},
		{len(c.TLSListen) == 0 && len(c.TLSCert)+len(c.TLSKey) > 0, "tls-cert, tls-key: do nothing without tls-listen"},
		{len(c.TLSListen) == 0 && c.TLSClientCA+c.TLSClientAuth != "", "tls-client-ca, tls-client-auth: do nothing without tls-listen"},
		{len(c.TLSCert) != len(c.TLSKey), "tls-key: there must be as many as tls-cert"},
		{c.TLSClientCA == "" && c.AsksClients(), "tls-client-auth: needs tls-client-ca"},
		{c.TLSClientCA != "" && !c.AsksClients(), "tls-client-ca: does nothing with tls-client-auth no"},
		{c.ProxyProtocol == "off" && len(c.ProxyProtocolFrom) > 0, "proxy-protocol-from: does nothing with proxy-protocol off"},
		{(c.UpstreamTLSCert == "") != (c.UpstreamTLSKey == ""), "upstream-tls-cert, upstream-tls-key: one needs the other"},
		{c.UpstreamTLSCA+c.UpstreamTLSCert+c.UpstreamTLSKey+c.UpstreamTLSServerName != "" && !c.speaksTLS(),
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
	return c.TLSClientAuth == "optional" || c.TLSClientAuth == "required" || c.TLSClientAuth == "" && c.TLSClientCA != ""
}
