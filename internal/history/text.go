package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/anishathalye/porcupine"
)

// String is one line for people.
func (o *Op) String() string {
	return fmt.Sprintf("%12s to %12s client %d proxy %d conn %d: %v -> %s %s %d", At(o.Call), At(o.Return), o.Client, o.Proxy, o.Conn,
		o.line(), o.Outcome, o.Text, o.N)
}

func (o *Op) line() string {
	if o.Verb == "CLOSE" {
		return "(closes)"
	}
	return strings.TrimSpace(fmt.Sprintln(o.Command()...))
}

// WriteFile writes operations and faults into a file, one a line.
func WriteFile(path string, ops []*Op, faults []Fault) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, o := range ops {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	for _, x := range faults {
		if err := e.Encode(x); err != nil {
			return err
		}
	}
	return f.Sync()
}

// ReadFile reads the operations that WriteFile has written.
func ReadFile(path string) (ops []*Op, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		o := &Op{}
		if err := d.Decode(o); err != nil {
			return nil, err
		}
		if o.Verb != "" { // else it is a fault
			ops = append(ops, o)
		}
	}
	return ops, nil
}

// Tell says what is wrong, the first five of it. Pictures of what porcupine found go into dir; "": none.
func Tell(wrong []Violation, dir string) string {
	var b strings.Builder
	for i, v := range wrong {
		if i == 5 {
			fmt.Fprintf(&b, "… and %d more\n", len(wrong)-i)
			break
		}
		fmt.Fprintf(&b, "VIOLATION %s: %s: %s\n", v.Oracle, v.Key, v.Text)
		for _, o := range v.Ops {
			fmt.Fprintf(&b, "    %v\n", o)
		}
		if v.picture != nil && dir != "" {
			path := filepath.Join(dir, strings.ReplaceAll(v.Key, "/", "_")+".html")
			if err := porcupine.VisualizePath(model, *v.picture, path); err != nil {
				fmt.Fprintln(&b, err)
			}
			fmt.Fprintf(&b, "    see %s\n", path)
		}
	}
	return b.String()
}
