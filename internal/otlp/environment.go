package otlp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
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
	url     string
	header  http.Header
	timeout time.Duration // of one try
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
	var faults []error
	for _, of := range []struct {
		setting string
		read    func(value string) error
	}{
		{"HEADERS", t.readHeaders},
		{"TIMEOUT", t.readTimeout},
		{"PROTOCOL", only("http/protobuf", "lockproxy sends by http/protobuf alone, to port 4318 of most collectors")},
		{"TEMPORALITY_PREFERENCE", only("cumulative", "lockproxy's figures are cumulative")},
		{"CERTIFICATE", only("", noFiles)},
		{"CLIENT_CERTIFICATE", only("", noFiles)},
		{"CLIENT_KEY", only("", noFiles)},
	} {
		if name, value := s.variable(of.setting); value != "" {
			if err := of.read(value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	faults = append(faults, t.readEndpoint(s))
	return t, errors.Join(faults...)
}

// only takes a setting that has one value here.
func only(value, why string) func(string) error {
	return func(given string) error {
		if value == "" || !strings.EqualFold(given, value) {
			return fmt.Errorf("%q is not there: %s", given, why)
		}
		return nil
	}
}

const noFiles = "lockproxy trusts the system's authorities, or those of SSL_CERT_FILE, and shows no certificate"

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
