package main

import (
	"strings"
	"testing"
)

func passing(names ...string) *outcome {
	o := &outcome{Passed: map[string]int{}, Failed: map[string]string{}}
	for _, n := range names {
		o.Passed[n]++
	}
	return o
}

func TestCompare(t *testing.T) {
	list := skips(t, "u | excused | why\nu | healed | why\nu | gone | why\nu | fine | race: lucky\n")
	r := &result{unit: "u", direct: passing("fine", "excused", "healed", "wrong", "lost", "twice", "twice"), proxy: passing("fine", "healed", "twice", "extra")}
	r.proxy.Failed["wrong"] = "Expected 1"
	r.proxy.Failed["excused"] = "known"
	r.compare(list)
	v := judge([]*result{r})
	if v.direct != 7 || v.passed != 3 || v.excused != 1 || v.missed != 3 || v.bad != 3 {
		t.Errorf("sums: %+v", v)
	}
	var out strings.Builder
	v.print(&out)
	v.unused(&out, list, &suite{name: "s", units: []string{"u"}})
	for _, want := range []string{
		"FAILED  u | wrong | Expected 1\n", "FAILED  u: 2 tests were not reached\n",
		"PASSES NOW  u | healed | take f:2 out\n", "UNUSED  u | gone | f:3 is about no test of s\n",
		"direct: 7 pass, 0 ignored; through lockproxy: 3 pass, 1 excused by the skip file, 3 fail\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 5 {
		t.Errorf("%d lines, want 5:\n%s", n, out.String())
	}
}

// Tests that do not fit one slot are no part of the share.
func TestShare(t *testing.T) {
	list := skips(t, "u | wide | slots: two keys\nu | other | why\n")
	r := &result{unit: "u", direct: passing("a", "b", "wide", "other"), proxy: passing("a", "b")}
	r.compare(list)
	v := judge([]*result{r})
	if v.spread != 1 || v.excused != 2 || v.share() != "66.6 %" {
		t.Errorf("%+v, share %s", v, v.share())
	}
}

// What fails a run beside failed tests.
func TestJudgeAborts(t *testing.T) {
	good := func() *result { return &result{unit: "u", direct: passing("a"), proxy: passing("a")} }
	for name, c := range map[string]struct {
		spoil func(*result)
		skips string
		bad   int
	}{
		"nothing":                   {spoil: func(*result) {}},
		"abort through lockproxy":   {spoil: func(r *result) { r.proxy.Aborted = "exception" }, bad: 1},
		"an abort is never excused": {spoil: func(r *result) { r.proxy.Aborted = "exception" }, skips: "u | * | why", bad: 1},
		"abort directly":            {spoil: func(r *result) { r.direct.Aborted = "exception" }, bad: 1},
		"fails directly":            {spoil: func(r *result) { r.direct.Failed["b"] = "x" }, bad: 1},
		"fails directly, excused":   {spoil: func(r *result) { r.direct.Failed["b"] = "x" }, skips: "u | b | why"},
	} {
		r := good()
		c.spoil(r)
		list := skips(t, c.skips)
		r.straight(list)
		r.compare(list)
		if v := judge([]*result{r}); v.bad != c.bad {
			t.Errorf("%s: bad is %d, want %d", name, v.bad, c.bad)
		}
	}
}

func TestReplaceSection(t *testing.T) {
	page, err := replaceSection("", "a", "one\n")
	if err != nil || !strings.HasPrefix(page, "<!-- Written by: make tcl ") {
		t.Fatalf("%v: %q", err, page)
	}
	page, _ = replaceSection(page, "b", "two\n")
	again, _ := replaceSection(page, "a", "three\n")
	if again != strings.Replace(page, "one\n", "three\n", 1) {
		t.Errorf("replacing a: %q", again)
	}
	if _, err := replaceSection("<!-- tcl: a -->\n", "a", "x\n"); err == nil {
		t.Error("a section without an end is taken")
	}
}

func TestReplaceRows(t *testing.T) {
	head := []string{"suite", "unit"}
	list := ""
	for _, c := range []struct {
		key, want string
		rows      [][]string
	}{
		{"a", "suite,unit\na,1\na,2\n", [][]string{{"a", "1"}, {"a", "2"}}},
		{"b, c", "suite,unit\na,1\na,2\n\"b, c\",3\n", [][]string{{"b, c", "3"}}},
		{"a", "suite,unit\na,4\n\"b, c\",3\n", [][]string{{"a", "4"}}},
		{"a", "suite,unit\n\"b, c\",3\n", nil},
	} {
		got, err := replaceRows(list, c.key, head, c.rows)
		if list = got; err != nil || got != c.want {
			t.Errorf("%s: %v: %q, want %q", c.key, err, got, c.want)
		}
	}
	if _, err := replaceRows("a,\"b\n", "a", head, nil); err == nil {
		t.Error("a broken list is taken")
	}
}
