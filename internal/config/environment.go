package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// others are the variables with the prefix that are no settings: those of lockproxy run and lockproxy top.
var others = []string{"LOCKPROXY_ADDRESS", "LOCKPROXY_LOCK", "LOCKPROXY_TOKEN"}

// serviceLink is a variable that Kubernetes and Docker set for a service whose name begins with lockproxy.
var serviceLink = regexp.MustCompile(`^LOCKPROXY(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|^LOCKPROXY(_\w+)?_PORT=(tcp|udp|sctp)://`)

// unknownVariables are the faults of an environment: a slip in a name must not leave, say, a command allowed.
func unknownVariables(fs *flag.FlagSet, environment []string) (faults []error) {
	known := slices.Clone(others)
	fs.VisitAll(func(f *flag.Flag) { known = append(known, envName(f.Name)) })
	for _, v := range environment {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !slices.Contains(known, name) && !serviceLink.MatchString(v) {
			faults = append(faults, fmt.Errorf("%s: no setting has this variable", name))
		}
	}
	return faults
}

// fromEnvironment sets what no flag has set. Only flags ask for the version and the like: images like to set
// LOCKPROXY_VERSION=1.2.3.
func fromEnvironment(given map[string]*rawValue) {
	for name, raw := range given {
		if text := os.Getenv(envName(name)); text != "" && !raw.set {
			raw.text, raw.set, raw.from = text, true, "environment"
		}
	}
}
