package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// report writes what was recorded and what is wrong with it into a new folder, and tells about it.
func (r *round) report(wrong []violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile %s, seed %d: %d violations\n", r.p.name, r.seed, len(wrong))
	dir, err := os.MkdirTemp(*out, fmt.Sprintf("lockproxy-history-%s-%d-", r.p.name, r.seed))
	if err == nil {
		err = r.write(dir)
	}
	for i, v := range wrong {
		if i == 5 {
			fmt.Fprintf(&b, "… and %d more\n", len(wrong)-i)
			break
		}
		fmt.Fprintf(&b, "VIOLATION %s: %s: %s\n", v.Oracle, v.Key, v.Text)
		for _, o := range v.Ops {
			fmt.Fprintf(&b, "    %v\n", o)
		}
		if v.picture != nil && err == nil {
			path := filepath.Join(dir, strings.ReplaceAll(v.Key, "/", "_")+".html")
			if e := porcupine.VisualizePath(model, *v.picture, path); e != nil {
				fmt.Fprintln(&b, e)
			}
			fmt.Fprintf(&b, "    see %s\n", path)
		}
	}
	if err != nil {
		fmt.Fprintln(&b, "the history could not be written:", err)
	} else {
		fmt.Fprintf(&b, "history: %s\n", dir)
	}
	if err == nil {
		_ = os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(b.String()), 0o644) // it is printed, too
	}
	fmt.Fprintf(&b, "again: go test ./integration/history -run History -count=1 -v -args -profile %s -seed %d -duration %v", r.p.name, r.seed, *length)
	return b.String()
}

func (r *round) write(dir string) error {
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, o := range r.ops {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	for _, x := range r.faults {
		if err := e.Encode(x); err != nil {
			return err
		}
	}
	return f.Sync()
}

// String is one line for people.
func (o *op) String() string {
	return fmt.Sprintf("%12s to %12s client %d proxy %d conn %d: %v -> %s %s %d", at(o.Call), at(o.Return), o.Client, o.Proxy, o.Conn,
		o.line(), o.Outcome, o.Text, o.N)
}

func (o *op) line() string {
	if o.Verb == "CLOSE" {
		return "(closes)"
	}
	return strings.TrimSpace(fmt.Sprintln(o.command()...))
}

// readHistory reads what write has written.
func readHistory(t *testing.T, path string) (ops []*op) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		o := &op{}
		if err := d.Decode(o); err != nil {
			t.Fatal(err)
		}
		if o.Verb != "" { // else it is a fault
			ops = append(ops, o)
		}
	}
	return ops
}
