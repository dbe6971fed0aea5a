package config

import (
	"strings"
	"testing"
)

// The page for operators is never open to strangers.
func TestAdminFaults(t *testing.T) {
	for args, want := range map[string]string{
		"--admin-listen 127.0.0.1:9181":                                                  "",
		"--admin-listen [::1]:9181":                                                      "",
		"--admin-listen localhost:9181":                                                  "",
		"--admin-listen :9181":                                                           "needs admin-token-file",
		"--admin-listen 0.0.0.0:9181":                                                    "needs admin-token-file",
		"--admin-listen 10.0.0.1:9181":                                                   "needs admin-token-file",
		"--admin-listen [::]:9181":                                                       "needs admin-token-file",
		"--admin-listen localhost.example:9181":                                          "needs admin-token-file",
		"--admin-listen 127.0.0.1.example:9181":                                          "needs admin-token-file",
		"--admin-listen :9181 --admin-tls-cert c --admin-tls-key k":                      "needs admin-token-file",
		"--admin-listen :9181 --admin-token-file t":                                      "",
		"--admin-listen :9181 --admin-tls-client-ca a":                                   "needs admin-tls-cert",
		"--admin-listen 127.0.0.1:9181 --admin-tls-cert c":                               "one needs the other",
		"--admin-listen 9181 --admin-token-file t":                                       "is not host:port",
		"--admin-token-file t":                                                           "does nothing without admin-listen",
		"--admin-tls-client-ca a":                                                        "does nothing without admin-listen",
		"--admin-listen :1 --admin-tls-client-ca a --admin-tls-cert c --admin-tls-key k": "",
	} {
		_, err := Parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
