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
		"--admin-listen :9181 --admin-view-token-file t":                                 "",
		"--admin-listen :9181 --admin-token-file t":                                      "",
		"--admin-listen :9181 --admin-tls-client-ca a":                                   "needs admin-tls-cert",
		"--admin-listen 127.0.0.1:9181 --admin-tls-cert c":                               "admin-tls-cert: needs admin-tls-key",
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

// Two listeners at one address are a fault of the settings, however it is written: --check-config says so, not only the start.
func TestAddressesNamedTwice(t *testing.T) {
	const tls = " --tls-cert c --tls-key k"
	for args, want := range map[string]string{
		"--listen 127.0.0.1:1 --metrics-listen 127.0.0.1:1":                                        `metrics-listen: "127.0.0.1:1" is named twice`,
		"--listen 127.0.0.1:1 --admin-listen 127.0.0.1:1":                                          `admin-listen: "127.0.0.1:1" is named twice`,
		"--metrics-listen 127.0.0.1:1 --admin-listen 127.0.0.1:1":                                  `admin-listen: "127.0.0.1:1" is named twice`,
		"--listen= --tls-listen 127.0.0.1:1 --metrics-listen 127.0.0.1:1" + tls:                    `metrics-listen: "127.0.0.1:1" is named twice`,
		"--listen 127.0.0.1:2,127.0.0.1:1 --metrics-listen 127.0.0.1:01":                           `metrics-listen: "127.0.0.1:01" is named twice`,
		"--listen 127.0.0.1:2 --tls-listen 127.0.0.1:2" + tls:                                      `tls-listen: "127.0.0.1:2" is named twice`,
		"--listen [::1]:1 --metrics-listen [0:0::1]:1":                                             `metrics-listen: "[0:0::1]:1" is named twice`,
		"--listen localhost:1 --metrics-listen LOCALHOST:1":                                        `metrics-listen: "LOCALHOST:1" is named twice`,
		"--upstream redis://db --listen :1 --metrics-listen 0.0.0.0:1":                             `metrics-listen: "0.0.0.0:1" is named twice`,
		"--upstream redis://db --listen [::]:1 --metrics-listen :1":                                `metrics-listen: ":1" is named twice`,
		"--upstream redis://db --listen :1 --metrics-listen 127.0.0.1:1":                           `metrics-listen: "127.0.0.1:1" is named twice: listen has ":1"`,
		"--listen 127.0.0.1:1 --metrics-listen :1":                                                 `metrics-listen: ":1" is named twice: listen has "127.0.0.1:1"`,
		"--upstream redis://db --listen 0.0.0.0:1 --metrics-listen [::1]:1":                        `metrics-listen: "[::1]:1" is named twice`,
		"--upstream redis://db --listen 127.0.0.1:1 --tls-listen [::]:1" + tls:                     `tls-listen: "[::]:1" is named twice`,
		"--upstream redis://db --listen db.example:1,:1":                                           `listen: ":1" is named twice: listen has "db.example:1"`,
		"--upstream redis://db --listen 10.0.0.1:1,127.0.0.1:1 --metrics-listen :1":                `metrics-listen: ":1" is named twice: listen has "10.0.0.1:1"`,
		"--reuse-port yes --listen localhost:1 --metrics-listen 127.0.0.1:1":                       `metrics-listen: "127.0.0.1:1" is named twice: listen has "localhost:1"`,
		"--listen 127.0.0.1:1 --metrics-listen localhost:1":                                        `metrics-listen: "localhost:1" is named twice`,
		"--listen localhost:1,[::1]:1 --metrics-listen 127.0.0.2:1":                                "",
		"--listen localhost:1,[::1]:1 --metrics-listen :2":                                         "",
		"--upstream redis://db --listen :0 --metrics-listen 127.0.0.1:0":                           "",
		"--listen unix:///a,unix:///a":                                                             `listen: "unix:///a" is named twice`,
		"--listen 127.0.0.1:1 --metrics-listen 127.0.0.1:2 --admin-listen 127.0.0.1:3":             "",
		"--listen 127.0.0.1:1 --metrics-listen 127.0.0.2:1":                                        "",
		"--listen 127.0.0.1:0,127.0.0.1:0 --metrics-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0": "",
		"--listen systemd:0 --tls-listen systemd:0" + tls:                                          `tls-listen: "systemd:0" is named twice`,
		"--listen systemd:a --tls-listen systemd:b --metrics-listen 127.0.0.1:1" + tls:             "",
		"--listen systemd:a --tls-listen systemd:a" + tls:                                          `tls-listen: "systemd:a" is named twice`,
	} {
		_, err := Parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || strings.Count(err.Error(), "named twice") != 1 || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
