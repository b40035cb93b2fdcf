package bgp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/addresses/bgp"
)

func TestPasswords(t *testing.T) {
	p, err := bgp.NewPassword("  s3cret\n")
	if err != nil || p.Reveal() != "s3cret" {
		t.Fatalf("%q, %v", p.Reveal(), err)
	}
	peer := bgp.Peer{Name: "a", Password: p}
	written, err := json.Marshal(peer)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(written), fmt.Sprint(peer), fmt.Sprintf("%+v %#v %q %x", peer, peer, p, p)} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "733363") {
			t.Errorf("it prints itself: %s", text)
		}
	}
	if (bgp.Password{}).Reveal() != "" {
		t.Error("none is one")
	}
	for name, text := range map[string]string{"empty": " \n", "long": strings.Repeat("x", 81), "lines": "s3cret\ntwo"} {
		if _, err := bgp.NewPassword(text); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
