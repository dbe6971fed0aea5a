package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// baseline returns what a unit says straight to the server, from the cache when
// the same suite was run with the same tags on the same server before.
func (b *environment) baseline(ctx context.Context, unit string) (*outcome, error) {
	file := b.baselineFile(unit)
	if !b.s.fresh && b.s.mode != "direct" {
		if text, err := os.ReadFile(file); err == nil {
			o := &outcome{}
			if json.Unmarshal(text, o) == nil && o.Unit == unit {
				return o, nil
			}
		}
	}
	o, err := b.runUnit(ctx, unit, true)
	if err != nil || o.Aborted != "" {
		return o, err
	}
	text, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return o, os.WriteFile(file, text, 0o644)
}

func (b *environment) baselineFile(unit string) string {
	source, _ := os.ReadFile(filepath.Join(b.suite.dir, "SOURCE")) // a folder of the user's has none
	what := fmt.Sprint(b.suite.dir, "|", string(source), "|", b.suite.server, "|", b.suite.serves, "|", b.s.resp, "|", b.s.deny, "|", b.s.multiDB)
	if b.s.nodes > 0 {
		what += "|--cluster-mode"
	}
	key := sha256.Sum256([]byte(what))
	return filepath.Join(b.s.cache, "baseline", fmt.Sprintf("%x", key[:6]), strings.ReplaceAll(unit, "/", "_")+".json")
}
