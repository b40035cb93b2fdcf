package webui

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

//nolint:gochecknoglobals // go test's flags are global
var update = flag.Bool("update", false, "make the pictures of the documents anew")

// scheme makes the browser prefer light or dark pages, without motion.
func scheme(name string) step {
	return call(emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
}

func eventful(t *testing.T, count int) *survey.Snapshot {
	t.Helper()
	s, err := snapshots.Eventful(count)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// small has the 256 most used colors: a page has few, and shades of text.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	used, box := map[color.Color]int{}, full.Bounds()
	for y := range box.Dy() {
		for x := range box.Dx() {
			used[full.At(x, y)]++
		}
	}
	palette := slices.SortedFunc(maps.Keys(used), func(a, b color.Color) int {
		return used[b] - used[a]
	})
	flat := image.NewPaletted(box, palette[:min(len(palette), 256)])
	nearest := map[color.Color]uint8{}
	for y := range box.Dy() {
		for x := range box.Dx() {
			c := full.At(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(flat.Palette.Index(c))
				nearest[c] = i
			}
			flat.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, flat); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The pictures in docs/how-to.
func TestPictures(t *testing.T) {
	for _, p := range []struct {
		file          string
		count         int
		width, height int
		scheme        string
		choose        string
	}{
		{"page.png", 3, 1440, 900, "light", ""},
		{"page-dark.png", 100, 1440, 900, "dark", "Node/worker-97"},
	} {
		t.Run(p.file, func(t *testing.T) {
			b := open(t, eventful(t, p.count), p.width, p.height, scheme(p.scheme))
			if p.choose != "" {
				b.do(chromedp.Click(`[data-id="` + p.choose + `"]`))
				b.until(`document.querySelectorAll("#detail .time li").length > 0`)
			}
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			picture := small(t, shot)
			if len(picture) > 200<<10 {
				t.Errorf("%d bytes, want at most 200 kB", len(picture))
			}
			if *update {
				if err := os.WriteFile("../../docs/how-to/"+p.file, picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b.stayedHere()
		})
	}
}
