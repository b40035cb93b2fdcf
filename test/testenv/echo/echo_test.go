//go:build linux

package echo

import (
	"net/netip"
	"testing"
)

func TestAReplyNamesServerAndSource(t *testing.T) {
	got, err := Parse("pod-one [::ffff:10.244.1.2]:4711\n")
	if want := (Answer{"pod-one", netip.MustParseAddrPort("10.244.1.2:4711")}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "pod-one", "HTTP/1.1 400 Bad Request"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
