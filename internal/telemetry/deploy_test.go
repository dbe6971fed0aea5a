package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	rules     = "../../deploy/prometheus/lockproxy.yml"
	ruleTests = "../../deploy/prometheus/lockproxy_test.yml"
	dashboard = "../../deploy/grafana/lockproxy.json"
)

var (
	ourName      = regexp.MustCompile(`\b(?:lockproxy|process|go)_[a-z_]+\b`)
	matcher      = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	grouping     = regexp.MustCompile(`\bby \(([^)]*)\)`)
	alertName    = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	alertLeadsTo = regexp.MustCompile(`(?m)^ +runbook_url: .*/docs/ALERTS\.md#(\w+)$`)
	alertTested  = regexp.MustCompile(`(?m)^ +- alertname: (\w+)$`)
	alertInDocs  = regexp.MustCompile(`(?m)^## (Lockproxy\w+)$`)
)

// scraped is what /metrics shows of everything that is counted.
func scraped(t *testing.T) string {
	t.Helper()
	tel := start(t, Options{MetricsListen: "127.0.0.1:0"})
	countSomething(context.Background())
	publish(t).Add(1, "plain", "expired")
	return get(t, tel, "/metrics")
}

// expressions are the queries in the files of deploy.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for rule := range strings.SplitSeq(string(text), "- alert: ") {
		if _, expr, is := strings.Cut(rule, "expr: "); is {
			expr, _, _ = strings.Cut(expr, "labels: ")
			all = append(all, expr)
		}
	}
	text, err = os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d queries were found", len(all))
	}
	return all
}

// The dashboard and the alerts ask for what there is.
func TestDeployedQueriesName(t *testing.T) {
	names, labels := map[string]bool{}, map[string]bool{"instance": true, "job": true}
	page := scraped(t)
	for series := range samples(t, page) {
		name, _, _ := strings.Cut(series, "{")
		names[name] = true
		for _, l := range label.FindAllStringSubmatch(series, -1) {
			labels[l[1]] = true
		}
	}
	for _, expr := range expressions(t) {
		for _, name := range ourName.FindAllString(expr, -1) {
			if !names[name] {
				t.Errorf("there is no %s, for which this asks: %s", name, expr)
			}
		}
		used := []string{}
		for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
			used = append(used, m[1])
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			used = append(used, strings.Split(strings.ReplaceAll(g[1], " ", ""), ",")...)
		}
		for _, l := range used {
			if !labels[l] {
				t.Errorf("no metric has the label %s, by which this asks: %s", l, expr)
			}
		}
	}
}

// What each alert means is in docs/ALERTS.md, and when it fires in the tests that promtool runs.
func TestAlertsAreDocumented(t *testing.T) {
	named := func(re *regexp.Regexp, file string) (all []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		return all
	}
	have := named(alertName, rules)
	var entries []string
	for _, name := range have {
		entries = append(entries, strings.ToLower(name))
	}
	if leadTo := named(alertLeadsTo, rules); !slices.Equal(leadTo, entries) {
		t.Errorf("the runbook_urls lead to %q", leadTo)
	}
	for file, re := range map[string]*regexp.Regexp{"../../docs/ALERTS.md": alertInDocs, ruleTests: alertTested} {
		if told := named(re, file); len(have) == 0 || !slices.Equal(have, told) {
			t.Errorf("%s has the alerts\n%q, %s\n%q", rules, have, file, told)
		}
	}
}

// Prometheus' own tool likes the alerts, has them fire when they should, and likes the metrics. make alerts has it installed.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT CHECKED: promtool is not on this machine (Debian has it in the package prometheus), so nobody has looked at the syntax of the alerts")
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", ruleTests}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var ours bytes.Buffer // what others count, as Go does, is not ours to name
	for line := range strings.Lines(scraped(t)) {
		if strings.Contains(line, "lockproxy_") {
			ours.WriteString(line)
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = &ours
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
