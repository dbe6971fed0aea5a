package main

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// write makes the lists: every table, as numbers.
func (f figures) write(folder string) error {
	var all []error
	for _, one := range []struct {
		file    string
		tables  []table
		ofLoads bool
	}{
		{"goals", f.goals, false}, {"commands", f.loads(), true}, {"locks", f.locks, true}, {"proxies", f.herds, true},
		{"scripts", f.scripts, false}, {"own", f.own, false},
	} {
		text, err := list(one.tables, one.ofLoads)
		if err == nil && text != "" {
			err = os.WriteFile(filepath.Join(folder, one.file+".csv"), []byte(text), 0o644)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// loads are the tables of ordinary commands, without the one that sums them up.
func (f figures) loads() []table { return f.commands[min(1, len(f.commands)):] }

// list puts tables of one kind below each other. Where each is of a load, the first column says which.
func list(tables []table, ofLoads bool) (string, error) {
	if len(tables) == 0 {
		return "", nil
	}
	var text strings.Builder
	out := csv.NewWriter(&text)
	titled := func(title string, cells []string) []string {
		if ofLoads {
			return append([]string{title}, cells...)
		}
		return cells
	}
	rows := [][]string{titled("load", headOf(tables[0]))}
	for _, t := range tables {
		for _, row := range t.rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = plainNumber(cell)
			}
			rows = append(rows, titled(t.title, cells))
		}
	}
	err := out.WriteAll(rows)
	return text.String(), err
}

// headOf is a table's head, where each column has a name.
func headOf(t table) []string {
	head := slices.Clone(t.head)
	for i, name := range head {
		if name == "" {
			head[i] = map[bool]string{true: "what", false: "unit"}[i == 0]
		}
	}
	return head
}

// plainNumber is a cell as programs read it: 88900 for "88.9 k", nothing for "–".
func plainNumber(cell string) string {
	if cell == "–" {
		return ""
	}
	if thousands, found := strings.CutSuffix(cell, " k"); found {
		if v, err := strconv.ParseFloat(thousands, 64); err == nil {
			return strconv.FormatFloat(v*1e3, 'f', 0, 64)
		}
	}
	return cell
}
