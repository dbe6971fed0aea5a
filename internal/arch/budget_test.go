package arch

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var listRooms = flag.Bool("rooms", false, "list the tokens and lines of each room")

// besideTheProduct are rooms whose code is no part of the product, and counts for nothing.
var besideTheProduct = []string{"integration", "bench", "deploy", "internal/testredis", "internal/simulation", "internal/history",
	"internal/arch", "internal/program", "internal/held"}

// budget is what budget.txt says.
type budget struct {
	most  int            // tokens of the product
	rooms map[string]int // tokens of each room when the file was written
}

const budgetFile = "budget.txt"

// The product's code has as many tokens as budget.txt says, or up to a hundredth less. More is red: a feature takes the place of
// another one. Fewer is red until the number is lowered: go test ./internal/arch -run TestBudget -update.
func TestBudget(t *testing.T) {
	tokens, lines := map[string]int{}, map[string]int{}
	for _, f := range readHouse(t) {
		if !f.test && ofProduct(f.pkg) {
			tokens[f.pkg] += f.tokens
			lines[f.pkg] += f.lines
		}
	}
	if *listRooms {
		for _, room := range slices.Sorted(maps.Keys(tokens)) {
			fmt.Printf("%-32s %7d tokens %6d lines\n", room, tokens[room], lines[room])
		}
		fmt.Printf("%-32s %7d tokens %6d lines\n", "the product", sum(tokens), sum(lines))
	}
	text, err := os.ReadFile(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	b, err := readBudget(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		b = budget{min(b.most, sum(tokens)), tokens}
		if err := os.WriteFile(budgetFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, fault := range b.faults(tokens) {
		t.Error(fault)
	}
}

func ofProduct(pkg string) bool {
	return !slices.ContainsFunc(besideTheProduct, func(room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") })
}

func sum(of map[string]int) (n int) {
	for _, one := range of {
		n += one
	}
	return n
}

// faults says what is wrong with the tokens that the rooms have.
func (b budget) faults(rooms map[string]int) (all []string) {
	n := sum(rooms)
	switch {
	case n > b.most:
		all = append(all, fmt.Sprintf("the product has %d tokens, %d above its budget: CONTRIBUTING.md says what a feature may cost", n, n-b.most))
		for _, room := range slices.Sorted(maps.Keys(rooms)) {
			if more := rooms[room] - b.rooms[room]; more > 0 {
				all = append(all, fmt.Sprintf("%s has grown by %d tokens to %d", room, more, rooms[room]))
			}
		}
	case n <= b.most-b.most/100:
		all = append(all, fmt.Sprintf("the product has %d tokens, %d below its budget: lower it by go test ./internal/arch -run TestBudget -update", n, b.most-n))
	}
	return all
}

func readBudget(text string) (b budget, err error) {
	b.rooms = map[string]int{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return b, fmt.Errorf("%s: %w", budgetFile, err)
		}
		if len(words) == 1 {
			b.most = n
		} else {
			b.rooms[words[1]] = n
		}
	}
	return b, nil
}

// String is how the file has it.
func (b budget) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "# How many tokens the product's code may have, as go/scanner counts them, without comments, automatic semicolons and tests;\n"+
		"# below it what each room had when this was written last. It goes down with what goes out, and up by an issue's own words.\n%d\n", b.most)
	for _, room := range slices.Sorted(maps.Keys(b.rooms)) {
		fmt.Fprintf(&s, "%d %s\n", b.rooms[room], room)
	}
	return s.String()
}

func TestBudgetFaults(t *testing.T) {
	t.Parallel()
	b, err := readBudget(budget{1000, map[string]int{"a": 600, "b": 395}}.String())
	if err != nil || b.most != 1000 || b.rooms["a"] != 600 || b.rooms["b"] != 395 {
		t.Fatalf("%+v, %v", b, err)
	}
	for want, rooms := range map[string]map[string]int{
		"":                        {"a": 605, "b": 395},
		"c has grown by 1 tokens": {"a": 600, "b": 400, "c": 1},
		"10 below its budget":     {"a": 590, "b": 400},
	} {
		if got := strings.Join(b.faults(rooms), "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", rooms, got, want)
		}
	}
	if got := countTokens([]byte("package a // b\nvar x = 1; var y = `z`\n")); got != 11 {
		t.Errorf("%d tokens", got)
	}
	if _, err := readBudget("many a\n"); err == nil {
		t.Error("a line without a number is read")
	}
}
