package page

import "testing"

// Whatever type a text has, it stays text, also between quotation marks.
func TestPutEscapes(t *testing.T) {
	type name string
	var d document
	d.put(`<a title="%s">%s</a>%s %d %.1f`, `"onclick="`, "<b>&'\x00", name("<i>"), 3, 0.25)
	if got, want := d.String(), `<a title="&#34;onclick=&#34;">&lt;b&gt;&amp;&#39;`+"\uFFFD"+`</a>&lt;i&gt; 3 0.2`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := address(2, "a b&<\xff"), "/lock?db=2&name=a+b%26%3C%FF"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
