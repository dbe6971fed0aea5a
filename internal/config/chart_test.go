package config

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type schema map[string]any

var (
	choices = regexp.MustCompile(` is not one of (.*)$`)
	ofFile  = regexp.MustCompile(`(-file|-cert|-key|-ca|-passwords)$`)
)

// ofValues is what the Helm chart takes for a setting: what a person may write in YAML, where no, off and 7 are no texts.
func ofValues(s setting) schema {
	var fault string
	if err := s.apply(&Config{}, "?"); err != nil {
		fault = err.Error()
	}
	one, named := schema{"type": "string"}, func(what string) schema { return schema{"$ref": "#/definitions/" + what} }
	switch {
	case choices.MatchString(fault):
		var all []any
		for _, word := range strings.Split(choices.FindStringSubmatch(fault)[1], ", ") {
			all = append(all, word)
			switch word {
			case "yes":
				all = append(all, true)
			case "no", "off":
				all = append(all, false)
			}
		}
		one = schema{"enum": all}
	case strings.Contains(fault, "not a whole number"):
		one = named("number")
	case strings.Contains(fault, "not a duration"):
		one = named("duration")
	case strings.Contains(fault, "not a size"):
		one = named("size")
	}
	if s.list {
		return schema{"type": []string{"string", "array"}, "items": one}
	}
	return one
}

// TestChartSchema: the chart's values.schema.json has the settings that there are, those that name files besides, and the alerts.
// Everything else in it is written by hand.
func TestChartSchema(t *testing.T) {
	const path = "../../deploy/helm/lockproxy/values.schema.json"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Schema               string            `json:"$schema"`
		Comment              string            `json:"$comment"`
		Definitions          map[string]schema `json:"definitions"`
		Type                 string            `json:"type"`
		AdditionalProperties bool              `json:"additionalProperties"`
		Properties           map[string]schema `json:"properties"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all, files, alerts := schema{}, schema{}, []string{}
	for _, s := range settings {
		all[s.name] = ofValues(s)
		if ofFile.MatchString(s.name) {
			files[s.name] = schema{"$ref": "#/definitions/secretKey"}
		}
	}
	rules, err := os.ReadFile("../../deploy/prometheus/lockproxy.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1) {
		alerts = append(alerts, string(m[1]))
	}
	if len(files) < 12 || len(alerts) < 12 || !slices.Contains(alerts, "LockproxyDown") {
		t.Errorf("%d settings that name files, the alerts %q", len(files), alerts)
	}
	object := func(of schema) schema {
		return schema{"type": "object", "additionalProperties": false, "properties": of}
	}
	file.Properties["settings"], file.Properties["secretFiles"] = object(all), object(files)
	file.Definitions["alert"] = schema{"enum": alerts}
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(file); err != nil {
		t.Fatal(err)
	}
	golden(t, path, want.String())
}
