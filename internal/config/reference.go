package config

import (
	"fmt"
	"io"
	"strings"
)

// Markdown is the whole of docs/CONFIGURATION.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Written by: go test ./internal/config -update -->

Every setting is a flag, an environment variable and a key of the YAML file named by ` + "`--config`" + `.
The flag wins over the variable, the variable over the file. All faults are reported at once.

Durations are written as ` + "`500ms`, `30s`, `1h30m`" + `. Sizes are Redis': ` + "`1k`" + ` is 1000 bytes, ` + "`1kb`" + ` is 1024.
Lists are given by repeating the flag, with commas, or as a YAML list.

| Flag | Environment | Default | Meaning |
|---|---|---|---|
`)
	for _, s := range settings {
		def := "none"
		if s.def != "" {
			def = "`" + s.def + "`"
		}
		meaning := s.meaning
		if s.list {
			meaning += " A list."
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", s.name, envName(s.name), def, strings.ReplaceAll(meaning, "|", `\|`))
	}
	fmt.Fprintf(&b, "| `--version` | | | %s |\n", versionMeaning)
	return b.String()
}

// Usage prints what --help shows.
func Usage(w io.Writer) {
	fmt.Fprint(w, "lockproxy serves a Redis, and locks. Usage: lockproxy [flags]\n\n")
	for _, s := range settings {
		def := ""
		if s.def != "" {
			def = " (default " + s.def + ")"
		}
		fmt.Fprintf(w, "  --%s%s\n        %s\n", s.name, def, strings.ReplaceAll(s.meaning, "`", ""))
	}
	fmt.Fprintf(w, "  --version\n        %s\n\nEach flag is also a variable (--log-level is %s) and a key of the --config file.\n",
		versionMeaning, envName("log-level"))
}

func envName(flag string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
