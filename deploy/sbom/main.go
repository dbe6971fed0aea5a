// Command sbom names what a binary of Go's is made of, as a CycloneDX bill of materials: sbom version <binary >bill.cdx.json. All
// that it says is read from the binary itself, so that the bill is of what was built and not of what might have been.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type metadata struct {
	Component component `json:"component"`
}

type bill struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom version <binary >bill.cdx.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version string, in io.Reader, out io.Writer) error {
	binary, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(billOf(version, binary, info))
}

// billOf is the bill of a binary: the modules that were linked into it, and Go's standard library.
func billOf(version string, binary []byte, info *debug.BuildInfo) bill {
	sum := sha256.Sum256(binary)
	main := module(info.Main.Path, version)
	main.Type, main.Hashes = "application", []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	all := []component{module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, module(m.Path, m.Version))
	}
	uses := dependency{Ref: main.Ref}
	for _, c := range all {
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	return bill{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: metadata{Component: main}, Components: all, Dependencies: []dependency{uses}}
}

func module(path, version string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
}
