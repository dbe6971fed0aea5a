package page

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/inforce"
)

// draining says on every page how far a drain is; nil: there is none.
func (d *document) draining(now time.Time, of *inforce.Drain) {
	if of == nil {
		return
	}
	d.put(`<li class="fair"><span class="dot"></span><b>drains</b> <span class="note">for %s`, display.Ago(now.Sub(of.Since)))
	d.when(now.Before(of.Closes), "; lets clients in for %s still", display.Ago(of.Closes.Sub(now)))
	left := max(0, of.Until.Sub(now))
	d.put(`; ends in %s at the latest; %s</span></li>`+"\n", display.Ago(left), display.Whole(of.Left))
}

// endsSoon is how long before its end a certificate is shown as bad: as the alert LockproxyCertificateEnds has it.
const endsSoon = 7 * 24 * time.Hour

// files draws the files of certificates and passwords.
func (d *document) files(now time.Time, all []inforce.File) {
	list(d, all, "No setting names a file of certificates or passwords.", `<th scope="col">File</th><th scope="col">Holds</th>`+
		`<th scope="col">Ends</th><th scope="col">In use since</th>`, func(f inforce.File) {
		bad := f.Trouble != "" || f.Ends != nil && f.Ends.Sub(now) < endsSoon
		d.put(`<tr class="%s"><td class="key"><bdi>%s</bdi></td>
<td data-label="Holds">%s`, either(bad, "bad", ""), display.Whole(f.Name), f.Holds)
		d.textIf(` <span class="note">%s</span>`, display.Whole(f.Trouble))
		d.put("</td>\n" + `<td data-label="Ends">`)
		if f.Ends != nil {
			d.put(`%d days left`, int(f.Ends.Sub(now)/(24*time.Hour)))
		}
		d.put(`</td>
<td data-label="In use since">%s UTC</td>
`, f.Since.UTC().Format(clock))
	})
}
