package config

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// parseYAML is a ff.ConfigFileParser. (ff's own reads YAML through a library
// that is no longer kept, and knows no line numbers.) It reports every unknown,
// repeated or misshapen setting of the file at once.
func parseYAML(r io.Reader, set func(name, value string) error) error {
	var doc yaml.Node
	if err := yaml.NewDecoder(r).Decode(&doc); errors.Is(err, io.EOF) {
		return nil // an empty file
	} else if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("config file line %d: not a list of name: value", root.Line)
	}
	var faults []error
	seen := make(map[string]bool)
	for pair := range slices.Chunk(root.Content, 2) {
		if err := setOne(pair[0], pair[1], seen, set); err != nil {
			faults = append(faults, fmt.Errorf("config file line %d: %w", pair[0].Line, err))
		}
	}
	return errors.Join(faults...)
}

func setOne(key, value *yaml.Node, seen map[string]bool, set func(name, value string) error) error {
	s := findSetting(key.Value)
	if s == nil || key.Value == "config" {
		return fmt.Errorf("unknown setting %q", key.Value)
	}
	if seen[key.Value] {
		return fmt.Errorf("%s is set twice", key.Value)
	}
	seen[key.Value] = true
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode && s.list {
		items = value.Content
	}
	if len(items) == 0 {
		return set(key.Value, "")
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return fmt.Errorf("%s needs a plain value", key.Value)
		}
		if err := set(key.Value, item.Value); err != nil {
			return err
		}
	}
	return nil
}
