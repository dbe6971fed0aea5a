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
	"os"
	"strings"
)

// envPrefix begins the name of every environment variable read.
const envPrefix = "LOCKPROXY"

// optional are the commands that Config.Allow may name.
var optional = []string{"debug", "monitor"}

// ErrHelpAll says that --help-all was given.
var ErrHelpAll = errors.New("help for all settings was asked for")

// Config is what the operator set, with the documented default in every field
// not set. docs/CONFIGURATION.md describes each one.
type Config struct {
	Upstream Upstream
	Listen   Listen
	TLS      TLS
	Cluster  Cluster
	Quorum   Quorum
	Locks    Locks
	Limits   Limits
	Commands Commands
	Log      Log
	Drain    Drain
	Admin    Admin
	File     File  // the YAML file read
	Given    Texts // what was given, as it was written
	Instead
}

// File is a YAML file of settings.
type File struct {
	Name  string // "": none was named
	Holds int    // how many settings are in it, with those that a flag or the environment overrides
}

// Instead is what to do instead of serving.
type Instead struct {
	Version bool // print the version and leave
	Check   bool // check the settings and leave
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
		given[s.name] = &rawValue{list: s.list, from: "flag"}
		fs.Var(given[s.name], s.name, s.meaning)
	}
	fs.BoolVar(&c.Version, "version", false, versionMeaning)
	fs.BoolVar(&c.Check, "check-config", false, checkMeaning)
	all := fs.Bool("help-all", false, helpAllMeaning)
	if err := fs.Parse(args); err != nil {
		return Config{}, hideUserinfo(err)
	}
	if *all {
		return Config{}, ErrHelpAll
	}
	if fs.NArg() > 0 {
		return Config{}, hideUserinfo(fmt.Errorf("unexpected argument %q: settings are --flags", fs.Arg(0)))
	}
	faults := unknownVariables(fs, os.Environ())
	fromEnvironment(given)
	if name := given["config"].text; name != "" {
		if err := c.File.read(name, given); err != nil {
			faults = append(faults, err)
		}
	}
	for _, s := range settings {
		if raw := given[s.name]; raw.set {
			c.Given = c.Given.with(s.name, raw)
			if err := s.apply(&c, raw.text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", s.name, err))
			}
		}
	}
	c.Drain = c.DrainWith(c.Admin.Metrics)
	faults = append(faults, c.validate()...)
	for i, fault := range faults {
		faults[i] = hideUserinfo(fault)
	}
	if err := errors.Join(faults...); err != nil {
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
	from      string // flag, environment or file
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
