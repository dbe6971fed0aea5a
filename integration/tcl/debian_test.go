package main

import "testing"

const stanzas = `Types: deb
URIs: http://mirror.example/debian
Suites: one one-updates
Components: main

# off
Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: one

Types: deb
URIs: http://other.example/x
Suites: else
Signed-By: /k
`

func TestSourceStanzas(t *testing.T) {
	want := `Types: deb deb-src
URIs: http://mirror.example/debian
Suites: one one-updates
Components: main

Types: deb deb-src
URIs: http://other.example/x
Suites: else
Signed-By: /k
`
	if got := sourceStanzas(stanzas, "", ""); got != want {
		t.Errorf("the machine's releases: %q", got)
	}
	want = `Types: deb deb-src
URIs: http://mirror.example/debian
Suites: two
Components: main`
	if got := sourceStanzas(stanzas, "one", "two"); got != want {
		t.Errorf("another release: %q", got)
	}
}

func TestSourceLines(t *testing.T) {
	text := "# deb http://off.example one main\ndeb [signed-by=/k arch=amd64] http://mirror.example one main\ndeb-src http://mirror.example one main\ndeb http://other.example else main\n"
	want := "deb [signed-by=/k arch=amd64] http://mirror.example two main\ndeb-src [signed-by=/k arch=amd64] http://mirror.example two main\n"
	if got := sourceLines(text, "one", "two"); got != want {
		t.Errorf("another release: %q", got)
	}
	want = "deb [signed-by=/k arch=amd64] http://mirror.example one main\ndeb-src [signed-by=/k arch=amd64] http://mirror.example one main\n" +
		"deb http://other.example else main\ndeb-src http://other.example else main\n"
	if got := sourceLines(text, "", ""); got != want {
		t.Errorf("the machine's releases: %q", got)
	}
}

func TestUpstream(t *testing.T) {
	for version, want := range map[string]string{"5:7.0.15-1~deb12u10": "7.0.15", "8.0.1+dfsg1-1~bpo12+1": "8.0.1", "7.2-rc1-2": "7.2-rc1", "1": "1"} {
		if got := upstream(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
