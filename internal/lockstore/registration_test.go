package lockstore

import "testing"

// TestRegistrations: what each registration that scripts/registration.lua writes says to the proxy that knows the hold as n, or as -n.
func TestRegistrations(t *testing.T) {
	for _, c := range []struct {
		text                         string
		renewed                      bool
		names, alone, names2, alone2 bool // n, and -n
	}{
		{"n", true, true, true, false, false},
		{"n+", true, true, false, false, false},
		{"n~", true, true, true, false, false},
		{"-n", false, false, false, true, true},
		{"-n+", false, false, false, true, false},
		{"-n~", false, false, false, true, true},
		{"other", true, false, false, false, false},
		{"+", false, false, false, false, false},
		{"", false, false, false, false, false},
	} {
		r := ParseRegistration(c.text)
		got := [5]bool{r.Renewed(), r.Names("n"), r.NamesAlone("n"), r.Names("-n"), r.NamesAlone("-n")}
		if want := [5]bool{c.renewed, c.names, c.alone, c.names2, c.alone2}; got != want {
			t.Errorf("%q: renewed, names n, alone, names -n, alone: %v, want %v", c.text, got, want)
		}
		if r.Names("") || r.NamesAlone("") {
			t.Errorf("%q has the name of no registration", c.text)
		}
	}
	if a, b := ParseRegistration("n~"), ParseRegistration("n"); a != b {
		t.Errorf("nodes of a quorum would not agree: %q, %q", a, b)
	}
}

// TestRegistrationsOfRequests: which registration a proxy asks for.
func TestRegistrationsOfRequests(t *testing.T) {
	for _, c := range []struct {
		got, want Registration
	}{
		{Registration("n").WithRenewals(true), "n"},
		{Registration("n").WithRenewals(false), "-n"},
		{Registration("-n").WithRenewals(true), "n"},
		{Registration("-n").WithRenewals(false), "-n"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
