package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
)

// probe renders what the chart's templates find out of texts and of pairs of them.
const probe = `
{{- range .Values.global.texts }}
{{ dict "network" (include "underlay.network" .) "mistake" (include "underlay.mistakes.prefix" (list "a" .) | trim) | toJson }}
{{- end }}
{{- range .Values.global.pairs }}
{{ dict "overlap" (include "underlay.overlap" (list (include "underlay.network" (first .)) (include "underlay.network" (last .)))) | toJson }}
{{- end }}
`

type finding struct{ Network, Mistake, Overlap string }

// findings are those of the texts, then those of the pairs.
func findings(t *testing.T, texts []string, pairs [][2]string) []finding {
	t.Helper()
	chart := loaded(t)
	chart.Templates = append(chart.Templates, &common.File{Name: "templates/probe", Data: []byte(probe)})
	values := parsed(t, three)
	var list []any
	for _, text := range texts {
		list = append(list, text)
	}
	var both []any
	for _, pair := range pairs {
		both = append(both, []any{pair[0], pair[1]})
	}
	values["global"] = map[string]any{"texts": list, "pairs": both}
	files, err := renderChart(t.Context(), chart, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	var found []finding
	for decoder := json.NewDecoder(strings.NewReader(files["probe"])); decoder.More(); {
		var f finding
		if err := decoder.Decode(&f); err != nil {
			t.Fatal(err)
		}
		found = append(found, f)
	}
	if len(found) != len(texts)+len(pairs) {
		t.Fatalf("%d findings of %d texts and %d pairs", len(found), len(texts), len(pairs))
	}
	return found
}

// modelNetwork is what underlay.network says, by netip.
func modelNetwork(text string) string {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is6() && strings.Contains(text, ".") {
		return ""
	}
	var bits strings.Builder
	for _, b := range prefix.Addr().AsSlice() {
		fmt.Fprintf(&bits, "%08b", b)
	}
	family := "IPv6"
	if prefix.Addr().Is4() {
		family = "IPv4"
	}
	return family + " " + bits.String()[:prefix.Bits()]
}

// TestPrefixesAreThoseOfNetip holds the templates' arithmetic to Go's.
func TestPrefixesAreThoseOfNetip(t *testing.T) {
	texts := []string{
		"", "/", "10.0.0.0", "10.0.0.0/", "/8", "10.0.0.0/8", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0.0/33", "10.0.0/8", "10.0.0.0.0/8", "010.0.0.0/8", "256.0.0.0/8",
		"10.0.0.0/8/8", "0.0.0.0/0", "255.255.255.255/32", "10.0.0.0/8 ", "10.0.0.0 /8", "::/0", "::/128", "::/129", ":/0", ":::/0", "::1::/64", "1::2::3/64", "fd00::/8",
		"FD00::/8", "fd00:0:0:0:0:0:0:0/8", "fd00:0:0:0:0:0:0/8", "1:2:3:4:5:6:7:8/128", "1:2:3:4:5:6:7::/112", "::2:3:4:5:6:7:8/128", "1:2:3:4:5:6:7:8::/128", "::1:2:3:4:5:6:7:8/128",
		"fd00:12345::/32", "fd00::g/64", "fe80::1%eth0/64", "::ffff:10.0.0.0/104", "::ffff:a00:0/104", "::ffff:a00:0/96", "64:ff9b::10.0.0.0/104", "fd00:10:244::/56", "fd00:10:244::1/56",
		"a.b.c.d/8", "10.0.0.0/8\n", "٣.0.0.0/8",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		texts = append(texts, randomPrefix(random))
	}
	for i, f := range findings(t, texts, nil) {
		text := texts[i]
		if want := modelNetwork(text); f.Network != want {
			t.Errorf("%q is %q, want %q", text, f.Network, want)
		}
		prefix, err := netip.ParsePrefix(text)
		fine := err == nil && prefix == prefix.Masked() && !prefix.Addr().Is4In6() && !(prefix.Addr().Is6() && strings.Contains(text, "."))
		if fine != (f.Mistake == "") {
			t.Errorf("%q: mistake %q", text, f.Mistake)
		}
		if _, instead, told := strings.Cut(f.Mistake, "beyond its length; write "); told && netip.MustParsePrefix(instead) != prefix.Masked() {
			t.Errorf("%q: it advises to write %s, want %s", text, instead, prefix.Masked())
		}
	}
}

func TestOverlapsAreThoseOfNetip(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var pairs [][2]string
	for len(pairs) < 300 {
		one := netip.MustParsePrefix(valid(random))
		other := netip.MustParsePrefix(valid(random))
		if random.IntN(2) == 0 { // the same address with another length
			other = netip.PrefixFrom(one.Addr(), random.IntN(one.Addr().BitLen()+1)).Masked()
		}
		pairs = append(pairs, [2]string{one.Masked().String(), other.Masked().String()})
	}
	pairs = append(pairs, [2]string{"0.0.0.0/0", "::/0"}, [2]string{"", ""}, [2]string{"10.0.0.0/8", ""})
	overlapping := 0
	for i, f := range findings(t, nil, pairs) {
		one, err := netip.ParsePrefix(pairs[i][0])
		other, otherErr := netip.ParsePrefix(pairs[i][1])
		want := err == nil && otherErr == nil && one.Overlaps(other)
		if want {
			overlapping++
		}
		if want != (f.Overlap != "") {
			t.Errorf("%v: overlap %q, want %t", pairs[i], f.Overlap, want)
		}
	}
	if overlapping < 100 || overlapping > len(pairs)-50 {
		t.Errorf("%d of %d pairs overlap, which proves little", overlapping, len(pairs))
	}
}

// valid is a prefix, mostly with address bits beyond its length.
func valid(random *rand.Rand) string {
	address := make([]byte, 4)
	if random.IntN(2) == 0 {
		address = make([]byte, 16)
	}
	for i := range address {
		if random.IntN(2) == 0 { // so that there are runs of zeros
			address[i] = byte(random.IntN(256))
		}
	}
	parsed, _ := netip.AddrFromSlice(address)
	prefix := netip.PrefixFrom(parsed, random.IntN(len(address)*8+1))
	if random.IntN(3) == 0 {
		return fmt.Sprintf("%s/%d", parsed.StringExpanded(), prefix.Bits())
	}
	return prefix.String()
}

// randomPrefix is one, or nearly.
func randomPrefix(random *rand.Rand) string {
	text := []byte(valid(random))
	if random.IntN(2) == 0 {
		return string(text)
	}
	at, with := random.IntN(len(text)), "0123456789abcdefABCDEF:./ g%"[random.IntN(28)]
	switch random.IntN(3) {
	case 0:
		text[at] = with
	case 1:
		text = append(text[:at], text[at+1:]...)
	default:
		text = append(text[:at], append([]byte{with}, bytes.Clone(text[at:])...)...)
	}
	return string(text)
}
