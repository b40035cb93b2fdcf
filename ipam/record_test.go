package ipam

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	for _, test := range []struct {
		holding Holding
		text    string
	}{
		{
			Holding{Node: a, Prefixes: prefixes("10.244.3.0/24")},
			"uid=uid-a 10.244.3.0/24",
		},
		{
			Holding{
				Node:      machine("a", "3f0c", "1234567"),
				Prefixes:  prefixes("10.244.3.0/24", "fd00:10:244:3::/64"),
				Abandoned: prefixes("10.244.9.0/24", "10.245.0.0/24"),
				Pools: map[netip.Prefix]string{
					pfx("10.244.3.0/24"): "default", pfx("fd00:10:244:3::/64"): "v6", pfx("10.244.9.0/24"): "default",
				},
				Released: time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC),
			},
			"uid=3f0c id=hcloud://1234567 10.244.3.0/24@default fd00:10:244:3::/64@v6 abandoned=10.244.9.0/24@default,10.245.0.0/24 released=2026-11-20T22:00:00Z",
		},
		{
			Holding{
				Node:     Node{Name: "a", UID: "a b\n%", ProviderID: "x://ü@="},
				Prefixes: prefixes("10.0.0.0/24"), Released: time.Date(2026, 11, 20, 22, 0, 0, 5, time.UTC),
			},
			"uid=a%20b%0A%25 id=x://%C3%BC@= 10.0.0.0/24 released=2026-11-20T22:00:00.000000005Z",
		},
	} {
		if got := test.holding.Record(); got != test.text {
			t.Errorf("Record() = %q, want %q", got, test.text)
		}
		h, err := ParseRecord("a", test.text)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.holding, h, comparePrefixes); diff != "" {
			t.Errorf("ParseRecord(%q) (-want +got):\n%s", test.text, diff)
		}
	}
}

func TestRecordsAreWrittenInUTC(t *testing.T) {
	h := Holding{Node: a, Prefixes: prefixes("10.0.0.0/24"), Released: noon.In(time.FixedZone("here", 3600))}
	if got := h.Record(); got != "uid=uid-a 10.0.0.0/24 released=2026-11-20T12:00:00Z" {
		t.Errorf("Record() = %q", got)
	}
}

func TestRecordsAreReadStrictly(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"", "no UID: write uid="},
		{"10.0.0.0/24", "no UID"},
		{"uid=a", "no prefix"},
		{"uid=a id=b", "no prefix"},
		{"uid= 10.0.0.0/24", `"uid=" has no value`},
		{"uid=a id= 10.0.0.0/24", `"id=" has no value`},
		{"uid=a%2 10.0.0.0/24", `"uid=a%2" has no value that can be read`},
		{"uid=a uid=b 10.0.0.0/24", `"uid=b" is the second uid=`},
		{"uid=a id=b id=b 10.0.0.0/24", `"id=b" is the second id=`},
		{"uid=a 10.0.0.0/24 10.0.0.0/24", `"10.0.0.0/24" is there twice`},
		{"uid=a 10.0.0.0/24 abandoned=10.0.0.0/24@v4", `"10.0.0.0/24@v4" is there twice`},
		{"uid=a abandoned=10.0.1.0/24 abandoned=10.0.2.0/24 10.0.0.0/24", "second abandoned="},
		{"uid=a abandoned= 10.0.0.0/24", `"" is no prefix`},
		{"uid=a 10.0.0.0", `"10.0.0.0" is no prefix`},
		{"uid=a 10.0.0.1/24", `"10.0.0.1/24" is not the first address of its range: write 10.0.0.0/24`},
		{"uid=a ::ffff:10.0.0.0/120", "write 10.0.0.0/24"},
		{"uid=a 10.0.0.0/24@", "names no pool after the @"},
		{"uid=a 10.0.0.0/24@My", "names no pool"},
		{"uid=a 10.0.0.0/24@v4@v6", "names no pool"},
		{"uid=a 10.0.0.0/24 color=red", `unknown word "color=red": use uid= id= abandoned= released=`},
		{"uid=a 10.0.0.0/24 released=", "is no time"},
		{"uid=a 10.0.0.0/24 released=yesterday", `"released=yesterday" is no time`},
		{"uid=a 10.0.0.0/24 released=0001-01-01T00:00:00Z", "is no time"},
		{"uid=a 10.0.0.0/24 released=2026-11-20T22:00:00Z released=2026-11-20T22:00:00Z", "second released="},
		{"uid=a 10.0.0.0/24\n10.0.1.0/24", "more than one line"},
	} {
		h, err := ParseRecord("node-7", test.text)
		if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "record of Node node-7") {
			t.Errorf("ParseRecord(%q): %+v, %v, want an error that names the Node and says %q", test.text, h, err, test.says)
		}
	}
}

func TestRecordsOfOneName(t *testing.T) {
	l := dualStack(t)
	second, first := machine("a", "2", "8"), machine("a", "1", "7")
	assign(t, l, second, "10.0.0.0/24", "fd00::/64")
	assign(t, l, first, "10.0.1.0/24", "fd00:0:0:1::/64")
	text := l.Records("a")[0]
	want := "uid=1 id=hcloud://7 10.0.1.0/24@v4 fd00:0:0:1::/64@v6\nuid=2 id=hcloud://8 10.0.0.0/24@v4 fd00::/64@v6"
	if text != want {
		t.Fatalf("Records(a) = %q, want %q", text, want)
	}
	for _, stored := range []string{text, text + "\n"} {
		holdings, err := ParseRecords("a", stored)
		if err != nil || len(holdings) != 2 || holdings[0].Node != first || holdings[1].Node != second {
			t.Errorf("ParseRecords = %+v, %v, want both", holdings, err)
		}
	}
	for text, says := range map[string]string{
		"":                                       "nothing in it",
		"\n":                                     "no UID",
		want + "\nuid=1 10.0.2.0/24":             `two lines for the UID "1"`,
		want + "\n\n":                            "no UID",
		"uid=1 10.0.2.0/24\r\nuid=2 10.0.3.0/24": "more than one line",
		"uid=1 10.0.2.0/24\nuid=2 10.0.3.":       `"10.0.3." is no prefix`,
	} {
		if _, err := ParseRecords("a", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseRecords(%q): %v, want an error that says %q", text, err, says)
		}
	}
	if got := l.Records("unknown"); got != [Shards]string{} {
		t.Errorf("records of an unknown name: %q", got)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("a", "uid=3f0c id=hcloud://1234567 10.244.3.0/24@default fd00::/64@v6 abandoned=10.244.9.0/24@default released=2026-11-20T22:00:00Z")
	f.Add("b", "uid=%25 ::/0")
	f.Add("", "released=9999-12-31T23:59:59.999999999+23:59 uid=a 0.0.0.0/0@-")
	f.Fuzz(func(t *testing.T, name, text string) {
		h, err := ParseRecord(name, text)
		if err != nil {
			return
		}
		again, err := ParseRecord(name, h.Record())
		if err != nil {
			t.Fatalf("%q was read, and written as %q: %v", text, h.Record(), err)
		}
		if diff := cmp.Diff(h, again, comparePrefixes); diff != "" {
			t.Fatalf("%q and what is written of it (-first +second):\n%s", text, diff)
		}
		l, err := NewLedger(smallPools[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Restore(h)
		restored, _ := l.Lookup(h.Node.UID)
		if got := withoutPools(restored.Record()); got != withoutPools(h.Record()) {
			t.Fatalf("restored as %q, want %q", got, h.Record())
		}
	})
}
