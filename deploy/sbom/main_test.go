package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestBill: the bill of this very test has its parts, each under a reference of its own.
func TestBill(t *testing.T) {
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run("1.2.3", bytes.NewReader(binary), &out); err != nil {
		t.Fatal(err)
	}
	var b bill
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	main := b.Metadata.Component
	if main.PURL != "pkg:golang/github.com/lockproxy/lockproxy@1.2.3" || main.Type != "application" || len(main.Hashes) != 1 || len(main.Hashes[0].Content) != 64 {
		t.Errorf("%+v", main)
	}
	if len(b.Components) == 0 || b.Components[0].Name != "stdlib" || len(b.Dependencies) != 1 || len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Errorf("%d components, %+v", len(b.Components), b.Dependencies)
	}
	if err := run("1", strings.NewReader("no binary"), &out); err == nil {
		t.Error("a bill of what is no binary")
	}
}
