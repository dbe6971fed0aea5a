package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is printed as Markdown: for the terminal its columns line up, on a page they need not.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// inWords is the column that has no figures.
const inWords = "bound by"

func (t *table) print(w io.Writer) {
	width, rule := make([]int, len(t.head)), "|"
	for i, head := range t.head {
		for _, row := range append([][]string{t.head}, t.rows...) {
			if width[i] = max(width[i], 2); head != inWords {
				width[i] = max(width[i], utf8.RuneCountInString(row[i]))
			}
		}
		right := map[bool]string{true: "-|", false: ":|"}[i == 0 || head == inWords]
		rule += strings.Repeat("-", width[i]+1) + right
	}
	if t.title != "" {
		fmt.Fprintf(w, "\n%s\n", t.title)
	}
	fmt.Fprintln(w)
	printRow(w, t.head, width)
	fmt.Fprintln(w, rule)
	for _, row := range t.rows {
		printRow(w, row, width)
	}
}

// printPage writes the table for a page, without blanks that only fill.
func (t *table) printPage(w io.Writer) {
	if t.title != "" {
		fmt.Fprintf(w, "\n%s\n", t.title)
	}
	rule := "|"
	for i, head := range t.head {
		rule += map[bool]string{true: "---|", false: "--:|"}[i == 0 || head == inWords]
	}
	fmt.Fprintf(w, "\n| %s |\n%s\n", strings.Join(t.head, " | "), rule)
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// printRow sets names left and figures right.
func printRow(w io.Writer, cells []string, width []int) {
	line := "|"
	for i, cell := range cells {
		pad := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(cell)))
		if i == 0 {
			line += " " + cell + pad + " |"
		} else {
			line += " " + pad + cell + " |"
		}
	}
	fmt.Fprintln(w, line)
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Cells: "–" stands for a figure there is none of.

func count(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v >= 100e3:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func decimal(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// figure has as many digits as tell something.
func figure(v float64) string {
	switch {
	case v >= 100:
		return whole(v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func whole(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", v)
}

// ratio is a over b, 0 when either is missing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
