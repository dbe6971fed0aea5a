package page

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestPictures makes the screenshots that docs show.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no -pictures: none are made")
	}
	store := redis(t)
	p, other := start(t, "--upstream", "redis://"+store), start(t, "--upstream", "redis://"+store)
	everyday(t, p)
	other.dial(t, "shop").want(t, "+OK", "LOCK", "orders:us:1017")
	work(t, t.Context(), p)
	time.Sleep(*busy)
	p.dial(t, "intruder").do("AUTH", "root", "guess")
	tab := browser(t, p)
	type shot struct {
		name, scheme, path string
		wide, high         int64
		scale              float64
	}
	shots := []shot{
		{"page-light", "light", "/", 1280, 1220, 1}, {"page-dark", "dark", "/", 1280, 1220, 1},
		{"page-phone", "light", "/", 390, 844, 2}, {"page-lock", "light", "/lock?db=0&name=orders:eu:4711", 1280, 860, 1},
	}
	for _, path := range sheets(t, tab, p) {
		if name := strings.TrimPrefix(path, "/"); name != "" && !strings.ContainsAny(name, "/?") {
			shots = append(shots, shot{"page-" + name, "light", path, 1280, 760, 1})
		}
	}
	for _, c := range shots {
		var picture []byte
		do(t, tab, emulation.SetDeviceMetricsOverride(c.wide, c.high, c.scale, c.wide < 500),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}}),
			chromedp.Navigate("http://"+p.admin+c.path), chromedp.WaitVisible("main"), chromedp.Sleep(3*time.Second),
			chromedp.ActionFunc(func(ctx context.Context) (err error) {
				picture, err = cdppage.CaptureScreenshot().WithFormat(cdppage.CaptureScreenshotFormatPng).Do(ctx)
				return err
			}))
		if err := os.WriteFile(filepath.Join(*pictures, c.name+".png"), small(t, picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// small is a picture in its 256 most frequent colors, which takes a third of the room.
func small(t *testing.T, picture []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	often := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			often[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return cmp.Compare(often[b], often[a]) })
	few := image.NewPaletted(full.Bounds(), colors[:min(len(colors), 256)])
	draw.Draw(few, few.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
