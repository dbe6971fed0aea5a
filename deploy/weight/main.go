// Command weight prints what each dependency of lockproxy costs, beside all of it: how many packages, how many seconds, how many MB.
//
// The cost of a module is that of its packages and of all those that nothing else in the program needs: what would go
// with it. Time is the processors' in a build without a cache, so that it hardly depends on what else the machine
// does; size is that of functions and data that the linker has kept, without what it adds for each (tables for
// tracebacks, symbols, DWARF).
package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const program = "./cmd/lockproxy"

// pkg is one package of the program.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     struct{ Path string }

	seconds float64 // of processors
	bytes   int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "weight")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := listed()
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "lockproxy")
	if err := timed(dir, binary, all); err != nil {
		return err
	}
	if err := sized(binary, all); err != nil {
		return err
	}
	root := all[len(all)-1] // go list has what others need before them
	figures := map[string]string{}
	for _, p := range all {
		if m := p.Module.Path; m != "" && m != root.Module.Path && figures[m] == "" {
			figures[m] = cost(all, lost(all, root, func(p *pkg) bool { return p.Module.Path == m }))
		}
	}
	figures["Go's own packages"] = cost(all, func(p *pkg) bool { return p.Standard })
	figures["lockproxy's own packages, and the linker"] = cost(all, func(p *pkg) bool { return p.Module.Path == root.Module.Path })
	figures["all of it"] = cost(all, func(*pkg) bool { return true })
	for _, m := range slices.Sorted(maps.Keys(figures)) {
		fmt.Println(m, figures[m])
	}
	return nil
}

// listed are the program's packages.
func listed() (all []*pkg, err error) {
	out, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard,Module", program).Output()
	if err != nil {
		return nil, err
	}
	for from := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		switch err := from.Decode(p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

// timed builds the program without a cache.
func timed(dir, binary string, all []*pkg) error {
	graph := filepath.Join(dir, "graph.json")
	build := exec.Command("go", "build", "-debug-actiongraph="+graph, "-o", binary, program)
	build.Env, build.Stderr = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache")), os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	text, err := os.ReadFile(graph)
	if err != nil {
		return err
	}
	var actions []struct {
		Mode, Package   string
		CmdUser, CmdSys float64
	}
	if err := json.Unmarshal(text, &actions); err != nil {
		return err
	}
	for _, a := range actions {
		if i := slices.IndexFunc(all, func(p *pkg) bool { return p.ImportPath == a.Package }); i >= 0 {
			all[i].seconds += (a.CmdUser + a.CmdSys) / 1e9
		}
	}
	return nil
}

// ofPackage is the package in the name of a symbol.
var ofPackage = regexp.MustCompile(`^((?:[\w.~%-]+/)*[\w%-]+)\.`)

// sized adds up the symbols of each package, but for memory that is empty at the start.
func sized(binary string, all []*pkg) error {
	file, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		name := ofPackage.FindStringSubmatch(s.Name)
		if name == nil || int(s.Section) >= len(file.Sections) || file.Sections[s.Section].Type == elf.SHT_NOBITS {
			continue
		}
		path := strings.ReplaceAll(name[1], "%2e", ".")
		if path == "main" {
			path = all[len(all)-1].ImportPath
		}
		if i := slices.IndexFunc(all, func(p *pkg) bool { return p.ImportPath == path }); i >= 0 {
			all[i].bytes += int(s.Size)
		}
	}
	return nil
}

// lost says which packages the program would not have without those.
func lost(all []*pkg, root *pkg, without func(*pkg) bool) func(*pkg) bool {
	needed, kept := reached(all, root, func(*pkg) bool { return false }), reached(all, root, without)
	return func(p *pkg) bool { return needed[p] && !kept[p] }
}

// reached are the packages that imports lead to, around those.
func reached(all []*pkg, root *pkg, without func(*pkg) bool) map[*pkg]bool {
	byPath := map[string]*pkg{}
	for _, p := range all {
		byPath[p.ImportPath] = p
	}
	kept := map[*pkg]bool{}
	var keep func(p *pkg)
	keep = func(p *pkg) {
		if p == nil || kept[p] || without(p) {
			return
		}
		kept[p] = true
		for _, path := range p.Imports {
			keep(cmp.Or(byPath[path], byPath["vendor/"+path]))
		}
	}
	keep(root)
	return kept
}

// cost is the figures of a row.
func cost(all []*pkg, of func(*pkg) bool) string {
	var sum pkg
	n := 0
	for _, p := range all {
		if of(p) {
			n++
			sum.seconds += p.seconds
			sum.bytes += p.bytes
		}
	}
	return fmt.Sprintf("%d packages, %.1f s, %.2f MB", n, sum.seconds, float64(sum.bytes)/1e6)
}
