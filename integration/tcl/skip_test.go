package main

import (
	"strings"
	"testing"
)

func skips(t *testing.T, text string) skipList {
	t.Helper()
	list, err := parseSkips(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParseSkips(t *testing.T) {
	list := skips(t, "# a comment\n\nunit/a | one | why\nunit/a | two | or three | norun: it hangs\nunit/b | * | norun: no\n")
	if s := list.find("unit/a", "one"); s == nil || s.reason != "why" || s.norun || s.where != "f:3" {
		t.Errorf("one: %+v", s)
	}
	if s := list.find("unit/a", "two | or three"); s == nil || !s.norun || s.reason != "it hangs" {
		t.Errorf("two: %+v", s)
	}
	if list.find("unit/a", "none") != nil || list.find("unit/b", "any") == nil {
		t.Error("find: a unit's other tests, or a * that is not any test")
	}
	if list.whole("unit/a") != nil || list.whole("unit/b") == nil {
		t.Error("whole: only a norun line for * keeps a unit from running")
	}
	if n := list.norun("unit/a"); len(n) != 1 || n[0] != "two | or three" {
		t.Errorf("norun: %q", n)
	}
	if s := skips(t, "u | t | norun: slots: two keys").find("u", "t"); !s.norun || !s.slots || s.race || s.reason != "two keys" {
		t.Errorf("two marks: %+v", s)
	}
	for _, bad := range []string{"unit/a | one", "unit/a | one | ", "unit/a | one | norun:", "unit/a |  | why", "u | t | a\nu | t | b"} {
		if _, err := parseSkips(strings.NewReader(bad), "f"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestSkipFilesAreReadable(t *testing.T) {
	if _, err := readSkips("skip.txt", 3, 3); err != nil {
		t.Error(err)
	}
}
