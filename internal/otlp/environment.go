package otlp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

const (
	prefix          = "OTEL_EXPORTER_OTLP_"
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
)

// signal is what is exported, by its name in paths.
type signal string

const (
	traces  signal = "traces"
	metrics signal = "metrics"
)

// target is where the batches of a signal go, and how.
type target struct {
	url      string
	header   http.Header
	compress bool
	timeout  time.Duration // of one try
	tls      *tls.Config   // nil: with the system's authorities
}

// own is the name of the variable that has a setting for this signal alone.
func (s signal) own(setting string) string {
	return prefix + strings.ToUpper(string(s)) + "_" + setting
}

// variable is the value of a setting for this signal, "" for none, and the name of the variable that has it.
func (s signal) variable(setting string) (name, value string) {
	for _, name = range []string{s.own(setting), prefix + setting} {
		if value = strings.TrimSpace(os.Getenv(name)); value != "" {
			break
		}
	}
	return name, value
}

// target reads the variables. The error names all that are unusable; it has no value in it that may be secret.
func (s signal) target() (target, error) {
	t := target{timeout: defaultTimeout, header: http.Header{
		"Content-Type": {"application/x-protobuf"}, "User-Agent": {"lockproxy"},
	}}
	var files tlsfiles.Names
	var faults []error
	for _, of := range []struct {
		setting string
		read    func(value string) error
	}{
		{"PROTOCOL", readProtocol},
		{"HEADERS", t.readHeaders},
		{"COMPRESSION", t.readCompression},
		{"TIMEOUT", t.readTimeout},
		{"TEMPORALITY_PREFERENCE", readTemporality},
		{"CERTIFICATE", func(file string) error { files.CA = file; return nil }},
		{"CLIENT_CERTIFICATE", func(file string) error { files.Certs = []string{file}; return nil }},
		{"CLIENT_KEY", func(file string) error { files.Keys = []string{file}; return nil }},
	} {
		if name, value := s.variable(of.setting); value != "" {
			if err := of.read(value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	faults = append(faults, t.readEndpoint(s), t.readFiles(files))
	return t, errors.Join(faults...)
}

func readProtocol(value string) error {
	if value != "http/protobuf" {
		return fmt.Errorf("%q is not there: lockproxy sends by http/protobuf alone, to port 4318 of most collectors", value)
	}
	return nil
}

func readTemporality(value string) error {
	if !strings.EqualFold(value, "cumulative") {
		return fmt.Errorf("%q is not there: lockproxy's figures are cumulative", value)
	}
	return nil
}

// readHeaders takes name=value,name=value, with values as in URLs.
func (t *target) readHeaders(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		name, text, found := strings.Cut(pair, "=")
		text, err := url.PathUnescape(strings.TrimSpace(text))
		if name = strings.TrimSpace(name); !found || name == "" || err != nil {
			return errors.New("it is not name=value,name=value")
		}
		t.header.Set(name, text)
	}
	return nil
}

func (t *target) readCompression(value string) error {
	switch value {
	case "gzip":
		t.compress = true
		t.header.Set("Content-Encoding", "gzip")
	case "none":
	default:
		return fmt.Errorf("%q is not one of gzip, none", value)
	}
	return nil
}

func (t *target) readTimeout(value string) error {
	ms, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number of milliseconds", value)
	}
	t.timeout = time.Duration(ms) * time.Millisecond // 0: none but a batch's
	return nil
}

// readEndpoint takes an URL whose path is the signal's or, for all signals, what is before that.
func (t *target) readEndpoint(s signal) error {
	name, value := s.variable("ENDPOINT")
	if value == "" {
		value = defaultEndpoint
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%s: it is not http://host:port or https://host:port", name)
	}
	if name != s.own("ENDPOINT") {
		u = u.JoinPath("v1", string(s))
	}
	t.url = u.String()
	return nil
}

// readFiles reads the authorities of the collector's certificate, and the certificate to show there.
func (t *target) readFiles(names tlsfiles.Names) error {
	if names.CA == "" && names.Certs == nil && names.Keys == nil {
		return nil
	}
	if len(names.Certs) != len(names.Keys) {
		return fmt.Errorf("%sCLIENT_CERTIFICATE: it goes with %sCLIENT_KEY", prefix, prefix)
	}
	files, err := tlsfiles.Open(names, slog.Default())
	if err != nil {
		return fmt.Errorf("%sCERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY: %w", prefix, err)
	}
	t.tls = files.Client(&tls.Config{})
	return nil
}
