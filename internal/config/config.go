// Package config reads the operator's settings from flags, the environment and
// a YAML file into one plain struct. Only cmd/lockproxy imports it; every other
// package has Options of its own.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3"

	"github.com/lockproxy/lockproxy/upstream"
)

// EnvPrefix begins the name of every environment variable read.
const EnvPrefix = "LOCKPROXY"

// Optional are the commands that Config.Allow may name.
var Optional = []string{"debug", "monitor"}

// ErrHelpAll says that --help-all was given.
var ErrHelpAll = errors.New("help for all settings was asked for")

// Config is what the operator set, with the documented default in every field
// not set. docs/CONFIGURATION.md describes each one.
type Config struct {
	Upstream upstream.URL // the Redis behind us; zero is the embedded store
	Listen   []string
	File     string // the YAML file read; "" is none

	TLSListen         []string
	TLSCert           []string // with its key at the same place in TLSKey
	TLSKey            []string
	TLSClientCA       string
	TLSClientAuth     string // no, optional or required; "" is required with a TLSClientCA, else no
	ProxyProtocol     string // off or required
	ProxyProtocolFrom []netip.Prefix

	ClusterAddressMap []string
	ClusterRefresh    time.Duration
	ClusterRetry      time.Duration
	ClusterReadFrom   string // master, replica or client
	Present           string // standalone or cluster
	AnnounceAddress   string // host:port; "" is where the client has connected

	UpstreamTLSCA         string // "" is the system's
	UpstreamTLSCert       string
	UpstreamTLSKey        string
	UpstreamTLSServerName string // "" is the upstream's host

	Quorum            []upstream.URL // the nodes that keep the locks; none: Upstream does
	QuorumMaxLease    time.Duration
	QuorumNodeTimeout time.Duration

	LockWatchdogTimeout time.Duration
	DisconnectGrace     time.Duration
	OwnerGrace          time.Duration
	DrainTimeout        time.Duration
	MaxHold             time.Duration // 0 is no limit
	ImplicitReentry     string        // auto, always or never
	ClusterPubSub       string        // both, sharded or classic
	FenceKeyTTL         time.Duration // 0 is never
	WarmChannels        int
	WaitPoll            time.Duration
	FairWait            time.Duration
	Threads             int // 0: half of the processors that Go finds

	MaxClients         int
	MaxPerAddress      int // 0 is no limit
	MaxUpstream        int // 0 is what the limit of open files leaves room for
	MaxUpstreamPerUser int // 0 is three quarters of MaxUpstream
	MaxBulk            int // bytes
	MaxArgs            int
	MaxCommand         int // bytes
	MaxQueryMemory     int // bytes; 0 is no limit
	MaxReplyMemory     int // bytes; 0 is no limit
	NormalOutput       OutputLimit
	PubSubOutput       OutputLimit
	IdleTimeout        time.Duration // 0 is no limit
	UpstreamTimeout    time.Duration // 0 is no limit
	ProtectedMode      string        // yes or no
	HandshakeTimeout   time.Duration // 0 is no limit
	Allow              []string      // of Optional: commands that are refused unless named
	Deny               []string      // command names in lower case
	BlockingCommands   []string      // command names in lower case

	MetricsListen string // "" is off
	LogLevel      slog.Level
	LogFormat     string // text or json

	Version bool // print the version and leave
}

// Parse reads args (without the program's name), then the environment for what
// args left open, then the YAML file for what both left open. Its error names
// every fault found, not the first alone; it wraps flag.ErrHelp when help was
// asked for, or ErrHelpAll. No error holds a password.
func Parse(args []string) (Config, error) {
	c := defaults()
	fs := flag.NewFlagSet("lockproxy", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	given := make(map[string]*rawValue, len(settings))
	for _, s := range settings {
		given[s.name] = &rawValue{list: s.list}
		fs.Var(given[s.name], s.name, s.meaning)
	}
	fs.BoolFunc("version", versionMeaning, func(v string) error {
		// Only the flag asks for it: images like to set LOCKPROXY_VERSION=1.2.3.
		c.Version = v == "true"
		return nil
	})
	all := false
	fs.BoolFunc("help-all", helpAllMeaning, func(v string) error {
		all = v == "true"
		return nil
	})
	err := ff.Parse(fs, args,
		ff.WithEnvVarPrefix(EnvPrefix),
		ff.WithConfigFileFlag("config"),
		ff.WithConfigFileParser(parseYAML))
	if err != nil {
		return Config{}, hideUserinfo(err)
	}
	if all {
		return Config{}, ErrHelpAll
	}
	if fs.NArg() > 0 {
		return Config{}, hideUserinfo(fmt.Errorf("unexpected argument %q: settings are --flags", fs.Arg(0)))
	}
	var faults []error
	for _, s := range settings {
		if raw := given[s.name]; raw.set {
			if err := s.apply(&c, raw.text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", s.name, err))
			}
		}
	}
	if err := errors.Join(append(faults, c.Validate())...); err != nil {
		return Config{}, err
	}
	return c, nil
}

func defaults() Config {
	var c Config
	for _, s := range settings {
		if s.def == "" {
			continue
		}
		if err := s.apply(&c, s.def); err != nil {
			panic(fmt.Sprintf("default of %s: %v", s.name, err)) // the table is wrong; every test finds it
		}
	}
	return c
}

// rawValue keeps what was given as it was written, so that Parse can report all
// bad values together instead of stopping at the first.
type rawValue struct {
	text      string
	set, list bool
}

func (r *rawValue) String() string { return r.text }

// Set replaces the value, or appends to a list's.
func (r *rawValue) Set(v string) error {
	if r.list && r.set {
		v = r.text + "," + v
	}
	r.text, r.set = v, true
	return nil
}

// String and GoString list the settings. No way of printing a Config shows a password.
func (c Config) String() string {
	type plain Config // without methods
	return fmt.Sprintf("%+v", plain(c))
}

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

// LogValue is String, for log/slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// hideUserinfo keeps a password out of an error that quotes an argument or a
// line, while errors.Is still finds flag.ErrHelp and file errors.
func hideUserinfo(err error) error {
	text := err.Error()
	if i := strings.Index(text, "sentinel-password="); i >= 0 {
		err = errors.New(text[:i] + "sentinel-password=…")
		text = err.Error()
	}
	from, to := strings.Index(text, "://"), strings.LastIndex(text, "@")
	if from < 0 || to < from {
		return err
	}
	return errors.New(text[:from] + "://…" + text[to:])
}
