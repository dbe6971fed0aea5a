package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

// read sets what is open in given. It reports every unknown, repeated or misshapen setting of the file at once.
func (f *File) read(name string, given map[string]*rawValue) error {
	text, err := tlsfiles.Read(name)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	open := map[string]*rawValue{}
	for name, raw := range given {
		if !raw.set {
			open[name] = raw
		}
	}
	return f.parse(text, func(name, value string) error {
		if raw := open[name]; raw != nil {
			raw.from = "file"
			return raw.Set(value)
		}
		return nil
	})
}

func (f *File) parse(text []byte, set func(name, value string) error) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF) && !utf8.Valid(text): // YAML's reader takes a mark of UTF-16 with nothing behind it for an empty file
		return errors.New("config file: it holds no text")
	case errors.Is(err, io.EOF):
		return nil // an empty file
	case err != nil:
		return fmt.Errorf("config file: %w", err)
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return fmt.Errorf("config file line %d: a second document begins, and only one is read", second.Line)
	case !errors.Is(err, io.EOF):
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
	f.Holds = len(seen)
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
